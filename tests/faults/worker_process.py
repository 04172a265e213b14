"""A process with a worker: `python -m tests.faults.worker_process URL HISTORY SEED`.

Its handlers record each delivery before they act on it, and each outcome before they return it; the worker settles. It
runs until SIGTERM. A payload that begins with `vanish` kills the process on the spot.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import penstock
from tests.faults.actor import LEASE_SECONDS, READY, described, vanish
from tests.faults.history import Writer

# Removal for silence must not come before the end of a lease, which is what the checker reckons with.
HEARTBEAT_SECONDS = 0.5
SWEEP_SECONDS = 0.2
GRACE_SECONDS = 0.5


class RecordingHandlers:
    def __init__(self, history: Path, seed: int) -> None:
        self.process = history.stem
        self.writer = Writer(history, self.process)
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        self.calls = 0

    def begin(self, delivery: Any) -> float:
        """Write down what came in; how long to work on it."""
        with self.lock:
            self.writer.write("delivery", "ok", queue=delivery.queue, asked_at=0, **described(delivery))
            if delivery.payload.startswith(b"vanish"):
                vanish()
            # Now and then longer than the lease, which the worker must keep alive.
            return self.random.choice([0, 0, 0, 0.01, 0.05, 2 * LEASE_SECONDS])

    def end(self, delivery: Any, verb: str) -> None:
        with self.lock:
            self.calls += 1
            about = {"verb": verb, "call": self.calls, "repeat": False, **described(delivery)}
            self.writer.write("settle", "invoke", queue=delivery.queue, **about)

    def work(self, delivery: penstock.Delivery) -> None:
        time.sleep(self.begin(delivery))
        poison = delivery.payload.startswith(b"poison")
        deeds = ["ack"] * 30 + ["nak", "retry", "reject", "reschedule", "explicit"]
        deed = "nak" if poison else self.random.choice(deeds)
        self.end(delivery, {"explicit": "ack", "retry": "nak"}.get(deed, deed))
        if deed == "nak":
            raise penstock.Retry(self.random.choice([0, 0.1]), "again")
        if deed == "retry":
            raise penstock.Retry(0.05, "later")
        if deed == "reject":
            raise penstock.Reject("never")
        if deed == "reschedule":
            raise penstock.Reschedule(0.1, "later")
        if deed == "explicit":
            delivery.ack()

    async def read_along(self, delivery: penstock.AsyncDelivery) -> None:
        await asyncio.sleep(self.begin(delivery))
        self.end(delivery, "ack")


def main(url: str, history: str, seed: str, heartbeat_seconds: str = str(HEARTBEAT_SECONDS)) -> None:
    logging.basicConfig(level=logging.WARNING)
    handlers = RecordingHandlers(Path(history), int(seed))
    app = penstock.App()
    app.add("work", handlers.work)
    app.add("work", handlers.read_along, group="audit")
    app.add("once", handlers.work)
    with penstock.connect(url) as store:
        worker = penstock.Worker(
            store,
            app,
            name=handlers.process,
            concurrency=3,
            heartbeat_seconds=float(heartbeat_seconds),
            sweep_seconds=SWEEP_SECONDS,
            grace_seconds=GRACE_SECONDS,
        )
        threading.Timer(0, lambda: (sys.stdout.write(READY), sys.stdout.flush())).start()
        worker.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
