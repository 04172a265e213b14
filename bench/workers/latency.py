"""Latency from send to handler at light load, from another process."""

from __future__ import annotations

import subprocess
import sys
import time

import penstock

HEADER = "sent-at"


def measure(url: str, messages: int, every_seconds: float) -> list[float]:
    """Milliseconds for each message, in the order in which they came."""
    taken: list[float] = []
    with penstock.connect(url) as store:
        store.migrate()

        def handle(delivery: penstock.Delivery) -> None:
            taken.append((time.time() - float(delivery.headers[HEADER])) * 1000)

        with penstock.Worker(store, {"light": handle}):
            words = [sys.executable, "-m", "bench.workers.latency", url, str(messages), str(every_seconds)]
            subprocess.run(words, check=True)
            ends = time.monotonic() + 10
            while len(taken) < messages and time.monotonic() < ends:
                time.sleep(0.01)
    assert len(taken) == messages, f"{len(taken)} of {messages} messages came"
    return taken


def _send(url: str, messages: int, every_seconds: float) -> None:
    with penstock.connect(url) as store:
        queue = store.queue("light")
        for _ in range(messages):
            time.sleep(every_seconds)
            queue.send(b"x", headers={HEADER: repr(time.time())})


if __name__ == "__main__":
    _send(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
