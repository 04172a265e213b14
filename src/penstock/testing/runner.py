"""Runs everything that is due in the caller's thread: no workers, no waiting, errors raised in the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from penstock.client.aio.queue import AsyncQueue
from penstock.client.connection import connect
from penstock.client.queue import Queue
from penstock.client.store import Store
from penstock.domain.errors import InvalidInput
from penstock.domain.lifecycle import Event
from penstock.domain.settlement import Settle, Signal
from penstock.testing.clock import Clock
from penstock.workers.app import App, Handler, as_app
from penstock.workers.lease_batch import AnyDelivery, AsyncWorkerDelivery, WorkerDelivery
from penstock.workers.loop import LoopThread
from penstock.workers.outcome import ack_of, batch_outcomes, outcome_of

CONSUMER = "test"


class Handled(msgspec.Struct, frozen=True):
    """The outcome of one message: `event` is ack, nak, reject or reschedule."""

    id: str
    queue: str
    event: Event
    reason: str | None
    attempt: int


def memory_store(clock: Clock | None = None) -> Store:
    """A new store in memory, on the given clock; backoffs have no jitter."""
    settings: dict[str, Any] = {} if clock is None else {"clock": clock}
    return connect("sqlite:///:memory:", random=lambda: 0.0, **settings)


def run_due(
    store: Store, handlers: App | Mapping[str, Callable[..., Any]], *, raises: bool = False, limit: int = 10_000
) -> list[Handled]:
    """Sweep, then run the handlers until nothing is due, including what they send; returns the outcomes in order. With
    `raises`, a handler's error is raised here, after its message was settled."""
    app = as_app(handlers)
    runner = _Runner(store, raises)
    try:
        for handler in app.handlers.values():
            store.queue(handler.queue, **handler.policy)
        for name, schedule in app.schedules.items():
            store.schedule(name, **schedule)
        while runner.sweep(list(app.handlers.values())):
            if len(runner.handled) > limit:
                raise InvalidInput(f"more than {limit} messages were handled: does one of them send itself again?")
    finally:
        runner.close()
    return runner.handled


class _Runner:
    def __init__(self, store: Store, raises: bool) -> None:
        self._store = store
        self._raises = raises
        self._loop: LoopThread | None = None
        self.handled: list[Handled] = []

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()

    def sweep(self, handlers: list[Handler]) -> bool:
        """Whether anything was due."""
        self._store.sweep()
        return any([self._run(handler) for handler in handlers])

    def _run(self, handler: Handler) -> bool:
        queue = self._store.queue(handler.queue)
        got = queue.receive(handler.batch_size or 1, group=handler.group, consumer=CONSUMER)
        several = [self._held(delivery, handler, queue) for delivery in got]
        if several:
            self._call(handler, queue, several)
        return bool(several)

    def _held(self, delivery: Any, handler: Handler, queue: Queue) -> AnyDelivery:
        if not handler.signature.is_async:
            return WorkerDelivery(delivery._row, delivery._receipt, queue)
        if self._loop is None:
            self._loop = LoopThread(self._store.engine)
        return AsyncWorkerDelivery(delivery._row, delivery._receipt, AsyncQueue(self._loop.store, queue.name))

    def _call(self, handler: Handler, queue: Queue, several: list[AnyDelivery]) -> None:
        error: BaseException | None = None
        try:
            result = self._result(handler, several)
        except Exception as raised:
            result = error = raised
        outcomes = batch_outcomes(several, result) if handler.batch_size else [outcome_of(several[0], result)]
        for delivery, outcome in zip(several, outcomes, strict=True):
            self._settle(queue, delivery, outcome)
        if self._raises and error is not None and not isinstance(error, Signal):
            raise error

    def _result(self, handler: Handler, several: list[AnyDelivery]) -> Any:
        signature = handler.signature
        if handler.batch_size is None:
            result = signature.call(several[0])
        else:
            payloads = [] if signature.decode is None else [signature.decode(one) for one in several]
            result = signature.call(several, payloads)
        if signature.is_async:
            assert self._loop is not None
            return asyncio.run_coroutine_threadsafe(result, self._loop.loop).result()
        return result

    def _settle(self, queue: Queue, delivery: AnyDelivery, outcome: Settle | None) -> None:
        if delivery._settled is not None:
            self.handled.append(Handled(delivery.id, queue.name, delivery._settled, None, delivery.attempt))
            return
        settle = outcome or ack_of(delivery)
        (settled,) = self._store.engine.settle(queue.name, delivery.group, [settle])
        if settled.error is not None:
            raise settled.error
        self.handled.append(Handled(settle.id, queue.name, settle.event, settle.reason, delivery.attempt))
