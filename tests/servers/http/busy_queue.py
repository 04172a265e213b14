"""A queue with something in every column, and no two columns alike."""

from __future__ import annotations

import penstock


def make_busy(queue: penstock.Queue) -> penstock.GroupStats:
    queue.store.queue(queue.name, max_retries=3)
    queue.send_many([{"n": one} for one in range(40)])
    queue.send_many([penstock.Outgoing(payload=b"later", delay_seconds=900) for _ in range(5)])
    queue.ack_many(queue.receive(limit=11))
    for delivery in queue.receive(limit=2):
        delivery.reject("no")
    for delivery in queue.receive(limit=3):
        delivery.nak("again", delay_seconds=0)
    queue.receive(limit=1, group="other")
    # The three retries come first; they stay in flight, and four more beside them.
    queue.receive(limit=7, lease_seconds=900)
    return queue.stats(group="default")
