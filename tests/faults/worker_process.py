"""A process with a worker: `python -m tests.faults.worker_process URL HISTORIES PROCESS`.

Its handlers record each delivery before they act on it. It runs until SIGTERM. A payload `vanish` kills the process on
the spot.
"""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path

import penstock
from penstock.chaos.history import Recorder
from tests.faults.actor import READY, vanish

HEARTBEAT_SECONDS = 0.5
SWEEP_SECONDS = 0.2
GRACE_SECONDS = 0.5


class RecordingHandlers:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def work(self, delivery: penstock.Delivery) -> None:
        self._record(delivery)

    async def read_along(self, delivery: penstock.AsyncDelivery) -> None:
        self._record(delivery)

    def _record(self, delivery: penstock.Delivery | penstock.AsyncDelivery) -> None:
        self.recorder.note("handle", queue=delivery.queue, group=delivery.group, id=delivery.id)
        if delivery.payload == b"vanish":
            vanish()


def main(url: str, histories: str, process: str) -> None:
    logging.basicConfig(level=logging.WARNING)
    handlers = RecordingHandlers(Recorder(Path(histories), process))
    app = penstock.App()
    app.add("work", handlers.work)
    app.add("work", handlers.read_along, group="audit")
    app.add("once", handlers.work)
    with penstock.connect(url) as store:
        worker = penstock.Worker(
            store,
            app,
            name=process,
            concurrency=3,
            heartbeat_seconds=HEARTBEAT_SECONDS,
            sweep_seconds=SWEEP_SECONDS,
            grace_seconds=GRACE_SECONDS,
        )
        threading.Timer(0, lambda: (sys.stdout.write(READY), sys.stdout.flush())).start()
        worker.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
