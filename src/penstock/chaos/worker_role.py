"""A worker process with a handler: Penstock's own, or the user's, called with the messages of the run."""

from __future__ import annotations

import importlib
import inspect
import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import penstock
from penstock.chaos.history import Recorder
from penstock.chaos.plan import LEASE_SECONDS, POISON, ActorPlan
from penstock.chaos.ports.python import taken

# Much longer than a lease, and than a crash of the server with the recovery of its clients on a busy machine: messages
# of a killed worker are taken over when their leases end, as the checker assumes, and not when the worker is removed
# for missed heartbeats.
HEARTBEAT_SECONDS = 60.0


class NotedWorker(penstock.Worker):
    """Records that it starts before it registers, that it stops before it releases anything, and that it has
    stopped."""

    def __init__(self, *arguments: Any, recorder: Recorder, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._recorder = recorder

    def start(self, once: bool = False) -> None:
        self._recorder.note("join")
        super().start(once)

    def stop(self) -> None:
        self._recorder.note("leave")
        try:
            super().stop()
        finally:
            self._recorder.note("left")


class WorkerRole:
    def __init__(self, plan: ActorPlan, recorder: Recorder) -> None:
        self.plan = plan
        self.recorder = recorder
        self.random = random.Random(plan.seed)
        self.handler = None if plan.handler is None else load_handler(plan.handler)
        self._lock = threading.Lock()

    def run(self, store: penstock.Store) -> None:
        logging.disable(logging.ERROR)
        app = penstock.App()
        if self.handler is not None and inspect.iscoroutinefunction(self.handler):
            app.add(self.plan.queues["jobs"], self._await_handler)
        else:
            app.add(self.plan.queues["jobs"], self._handle)
        NotedWorker(
            store, app, name=self.plan.process, concurrency=4, heartbeat_seconds=HEARTBEAT_SECONDS, grace_seconds=1,
            recorder=self.recorder,
        ).run()  # fmt: skip

    def _handle(self, delivery: penstock.Delivery) -> None:
        self._begin(delivery)
        if self.handler is not None:
            self._called(delivery, self.handler)
            return
        with self._lock:
            seconds = self.random.choice([0, 0, 0, 0.01, 0.1, 2 * LEASE_SECONDS])
            verb = self.random.choice(["ack"] * 12 + ["nak", "nak", "reject", "reschedule"] + ["explicit"] * 6)
        time.sleep(seconds)
        if delivery.payload.startswith(f'{{"chaos":"{POISON}'.encode()):
            verb = "nak"
        self._end(delivery, verb)

    def _end(self, delivery: penstock.Delivery, verb: str) -> None:
        call = self._settle(delivery, "ack" if verb == "explicit" else verb)
        if verb == "nak":
            raise penstock.Retry(0.1, "chaos")
        if verb == "reject":
            raise penstock.Reject("chaos")
        if verb == "reschedule":
            raise penstock.Reschedule(0.1, "chaos")
        if verb == "explicit":
            try:
                delivery.ack()
            except penstock.LeaseLost:
                self.recorder.answer("settle", "fail", call)
                raise
            self.recorder.answer("settle", "ok", call, state="succeeded")

    def _called(self, delivery: penstock.Delivery, handler: Callable[..., Any]) -> None:
        """Call the user's handler; the worker sees what it raises."""
        try:
            handler(delivery)
        except BaseException as error:
            self._settle(delivery, _verb(error))
            raise
        self._settle(delivery, "ack")

    async def _await_handler(self, delivery: penstock.AsyncDelivery) -> None:
        assert self.handler is not None
        self._begin(delivery)
        try:
            await self.handler(delivery)
        except BaseException as error:
            self._settle(delivery, _verb(error))
            raise
        self._settle(delivery, "ack")

    def _begin(self, delivery: penstock.Delivery | penstock.AsyncDelivery) -> None:
        left = delivery.lease_ends_at.timestamp() - time.time() - self.plan.clock_ahead_seconds
        one = taken(delivery)
        self.recorder.note(
            "handle", queue=delivery.queue, group=delivery.group, left=round(left * 1_000_000), lease=LEASE_SECONDS,
            **one.described,
        )  # fmt: skip

    def _settle(self, delivery: penstock.Delivery | penstock.AsyncDelivery, verb: str) -> int:
        one = taken(delivery)
        return self.recorder.invoke(
            "settle", verb=verb, delay=None, queue=delivery.queue, group=delivery.group,
            message=one.message, token=one.token,
        )  # fmt: skip


def _verb(error: BaseException) -> str:
    if isinstance(error, penstock.Reject):
        return "reject"
    return "reschedule" if isinstance(error, penstock.Reschedule) else "nak"


def load_handler(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found
