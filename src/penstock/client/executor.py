"""Calls of the synchronous client to the engine. Its counterpart `aio/executor.py` runs them on threads and coalesces
them; the rest of the asynchronous client is generated from the synchronous one."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from penstock.client.producer_batch import put_all
from penstock.client.slot import current_slot
from penstock.client.tracing import Tracing
from penstock.domain.errors import PenstockError
from penstock.domain.message import Draft
from penstock.domain.settlement import Settle, Settled
from penstock.engines.contract import Engine, Receipt

T = TypeVar("T")
P = ParamSpec("P")
# Poll interval of a wait. Notifications are only a hint, so every wait also polls.
BACKSTOP_SECONDS = 5.0


def cut_short(call: Callable[Concatenate[Executor, P], T]) -> Callable[Concatenate[Executor, P], T]:
    """An exception of a signal handler may come where no `with` block of the engine sees it: between the lines of its
    `__exit__`. Only a caller of the engine sees every one."""

    @wraps(call)
    def guarded(executor: Executor, /, *arguments: P.args, **named: P.kwargs) -> T:
        try:
            return call(executor, *arguments, **named)
        except PenstockError:
            raise
        except BaseException:
            executor.engine.end_interrupted()
            raise

    return guarded


class Executor:
    # Set by `penstock.trace`.
    tracing: Tracing | None = None

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @cut_short
    def read(self, operation: Callable[[], T]) -> T:
        return operation()

    @cut_short
    def write(self, operation: Callable[[], T], *, alone: bool = False) -> T:
        """`alone` is for operations that take long or begin their own transactions: the asynchronous counterpart runs
        them outside of shared transactions."""
        return operation()

    @cut_short
    def send(self, queue: str, messages: list[Draft], transaction: object = None) -> list[str]:
        if not messages:
            return []
        if self.tracing is None:
            return self.engine.send(queue, messages, transaction)
        messages, finish = self.tracing.sending(queue, messages)
        try:
            ids = self.engine.send(queue, messages, transaction)
        except BaseException as error:
            finish(None, error)
            raise
        finish(ids, None)
        return ids

    @cut_short
    def receive(self, queue: str, group: str | None, consumer: str, limit: int, lease_seconds: float | None) -> Receipt:
        return self.engine.receive(queue, group, consumer, limit, lease_seconds)

    @cut_short
    def settle(self, queue: str, group: str, settles: list[Settle]) -> list[Settled]:
        return self.engine.settle(queue, group, settles)

    @cut_short
    def ack_all(self, queue: str, group: str, token: int, positions: list[int]) -> bool:
        return self.engine.ack_all(queue, group, token, positions)

    def wait(self, key: Hashable, ready_in: Callable[[], float | None], timeout_seconds: float) -> None:
        """Return when `ready_in` returns 0, or after the timeout. `ready_in` returns the seconds until it should be
        called again, or None when only a commit can change its answer. The asynchronous counterpart calls it once for
        all waiters with the same `key`."""
        ends = time.monotonic() + timeout_seconds
        seen = self.engine.seen()
        while True:
            seconds = ready_in()
            left = ends - time.monotonic()
            if seconds == 0 or left <= 0:
                return
            seen = self.engine.wait(seen, min(left, BACKSTOP_SECONDS if seconds is None else seconds))

    def leave_slot(self) -> None:
        """Free the worker's slot before a handler blocks."""
        slot = current_slot.get()
        if slot is not None:
            slot.leave()

    def enter_slot(self) -> None:
        slot = current_slot.get()
        if slot is not None:
            slot.enter()

    def close(self) -> None:
        put_all(self.engine)
        self.engine.close()
