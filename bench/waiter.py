"""The process that waits in the idle scenario: first for nothing, then for messages of another process.

Prints what waiting cost, READY, and when each message came. `time.monotonic_ns` is the same clock in all processes of
a machine, so the other side can subtract.
"""

from __future__ import annotations

import json
import sys
import time

import penstock

READY = "ready"
DONE = "done"


def main(url: str, idle_seconds: float) -> None:
    with penstock.connect(url) as store:
        queue = store.queue("bench")
        print(json.dumps(_wait_for_nothing(queue, idle_seconds)), flush=True)
        print(READY, flush=True)
        print(json.dumps(_wait_for_messages(queue)), flush=True)


def _wait_for_nothing(queue: penstock.Queue, seconds: float) -> dict[str, float]:
    began, used = time.monotonic(), time.process_time()
    assert not queue.receive(wait_seconds=seconds)
    return {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - used}


def _wait_for_messages(queue: penstock.Queue) -> dict[str, int]:
    received: dict[str, int] = {}
    while True:
        for delivery in queue.receive(wait_seconds=30):
            at = time.monotonic_ns()
            delivery.ack()
            if delivery.payload == DONE.encode():
                return received
            received[delivery.id] = at


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
