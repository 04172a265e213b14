"""How calls reach the engine: straight. `aio/calling.py` is the asynchronous counterpart, which gathers them; all the
rest of a client is the same in both, and is written from one source."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import TypeVar

from penstock.client.consignment import put_all
from penstock.client.slot import current_slot
from penstock.client.tracing import Tracing
from penstock.domain.message import Draft
from penstock.domain.settlement import Settle, Settled
from penstock.engines.contract import Engine, Receipt

T = TypeVar("T")
# A wait looks again after this long even if it heard of no commit: waking up is a hint, never needed for correctness.
BACKSTOP_SECONDS = 5.0


class Calls:
    # Set by whoever traces this store.
    tracing: Tracing | None = None

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def _run(self, operation: Callable[[], T]) -> T:
        return operation()

    def _run_alone(self, operation: Callable[[], T]) -> T:
        """For what may take long or makes transactions of its own: never gathered with others."""
        return operation()

    def _read(self, operation: Callable[[], T]) -> T:
        return operation()

    def _send(self, queue: str, messages: list[Draft], transaction: object) -> list[str]:
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

    def _receive(
        self, queue: str, group: str | None, consumer: str, limit: int, lease_seconds: float | None
    ) -> Receipt:
        return self.engine.receive(queue, group, consumer, limit, lease_seconds)

    def _settle(self, queue: str, group: str, settles: list[Settle]) -> list[Settled]:
        return self.engine.settle(queue, group, settles)

    def _ack_all(self, queue: str, group: str, token: int, positions: list[int]) -> bool:
        return self.engine.ack_all(queue, group, token, positions)

    def _wait(self, awaited: Hashable, ready_in: Callable[[], float | None], timeout_seconds: float) -> None:
        """Until `ready_in` says 0 or the time is up; it says None when only a commit can change that. Equal `awaited`
        means that the same thing is waited for, which the asynchronous counterpart looks at once for all."""
        ends = time.monotonic() + timeout_seconds
        seen = self.engine.seen()
        while True:
            seconds = ready_in()
            left = ends - time.monotonic()
            if seconds == 0 or left <= 0:
                return
            seen = self.engine.wait(seen, min(left, BACKSTOP_SECONDS if seconds is None else seconds))

    def _leave_slot(self) -> None:
        """A handler of a worker gives its slot back before it waits."""
        slot = current_slot.get()
        if slot is not None:
            slot.leave()

    def _enter_slot(self) -> None:
        slot = current_slot.get()
        if slot is not None:
            slot.enter()

    def _close(self) -> None:
        put_all(self.engine)
        self.engine.close()
