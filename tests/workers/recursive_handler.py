"""A handler for a child process that waits for messages it has sent."""

from __future__ import annotations

import os

import penstock


def handle(delivery: penstock.Delivery) -> None:
    depth = delivery.json()
    if depth < 2:
        with penstock.connect(os.environ["RECURSING_URL"]) as store:
            queue = store.queue("work")
            queue.send(depth + 1, address=f"depth {depth + 1}")
            queue.wait(f"depth {depth + 1}", timeout_seconds=20)
