"""The other side of a process slot: calls the handler, and asks the worker for everything that needs the store."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import msgspec

from penstock.client.settling import checked
from penstock.client.slot import current_slot
from penstock.domain.errors import LeaseLost, PenstockError
from penstock.domain.settlement import Settled, Settlement, Signal, spoken
from penstock.engines.contract import Receipt
from penstock.workers.lease_batch import AnyHeld, Held
from penstock.workers.outcome import batch_outcomes, outcome_of
from penstock.workers.signature import named, read_signature

Outcome = tuple[str, str | None, float | None]
# Signals that wait until a child has set its handlers for them.
DEFERRED = (signal.SIGTERM, signal.SIGINT)
PR_SET_PDEATHSIG = 1


class Work(msgspec.Struct, array_like=True):
    """What the worker hands over: the deliveries of one call."""

    token: int
    queue: str
    group: str
    consumer: str
    salt: int
    rows: list[Any]


class Word(msgspec.Struct, array_like=True):
    """What the child says: the result, or a wish that only the worker can grant."""

    say: str
    place: int = 0
    event: str = ""
    reason: str | None = None
    seconds: float | None = None
    outcomes: list[Outcome | None] = []
    trace: str = ""


decode_work = msgspec.msgpack.Decoder(Work).decode
decode_word = msgspec.msgpack.Decoder(Word).decode


def encode_work(several: Sequence[AnyHeld]) -> bytes:
    receipt = several[0]._receipt
    rows = [delivery._row for delivery in several]
    return msgspec.msgpack.encode(
        Work(receipt.token, receipt.queue, receipt.group, receipt.consumer, receipt.salt, rows)
    )


def work_forever(connection: Connection, queue: str, is_batch: bool, parent: int) -> None:
    """The child's main: one call after the other, until the worker closes the pipe."""
    _end_with_parent(parent)
    _leave_signals_to_the_worker()
    asking = Asking(connection)
    current_slot.set(asking)
    try:
        function = connection.recv()
        signature = read_signature(function, f"handler {named(function)} of queue {queue!r}", is_batch)
    except BaseException as error:
        traceback.print_exc()
        connection.send_bytes(msgspec.msgpack.encode(Word("failed", reason=spoken(error))))
        return
    connection.send_bytes(msgspec.msgpack.encode(Word("ready")))
    while True:
        try:
            work = decode_work(connection.recv_bytes())
        except (EOFError, OSError):
            return
        connection.send_bytes(msgspec.msgpack.encode(_run(work, signature, is_batch, asking)))


def _leave_signals_to_the_worker() -> None:
    """Ctrl-C reaches every process of a terminal, and a service manager signals all processes of a service: the worker
    decides what becomes of its children. SIGTERM is not ignored but handled by doing nothing, because programs that a
    handler starts inherit what is ignored, and could not be terminated."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, DEFERRED)


def _end_with_parent(parent: int) -> None:
    """A worker that was killed must not leave handlers behind whose outcome nobody hears. Linux kills them with their
    parent, whatever they do; elsewhere a thread waits for the parent's end, and a handler that never gives up the
    interpreter's lock is not ended."""
    threading.Thread(target=_await_parent, name="penstock-parent", daemon=True).start()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before
            os._exit(1)


def _await_parent() -> None:
    process = multiprocessing.parent_process()
    if process is not None:
        wait([process.sentinel])
        os._exit(1)


def _run(work: Work, signature: Any, is_batch: bool, asking: Asking) -> Word:
    receipt = Receipt(work.token, work.queue, work.group, work.consumer, work.salt, [tuple(row) for row in work.rows])
    several: list[AnyHeld] = [Held(row, receipt, asking) for row in receipt.rows]
    asking.several = several
    asking.delivery = several[0]
    trace = ""
    try:
        if is_batch:
            decode = signature.decode
            payloads = [] if decode is None else [decode(delivery) for delivery in several]
            result = signature.call(several, payloads)
        else:
            result = signature.call(several[0])
    except BaseException as error:
        result = error
        if not isinstance(error, Signal):
            trace = spoken(traceback.format_exc()) or ""
    asking.delivery = None
    settles = batch_outcomes(several, result) if is_batch else [outcome_of(several[0], result)]
    outcomes = [None if one is None else (str(one.event), spoken(one.reason), one.delay_seconds) for one in settles]
    return Word("result", outcomes=outcomes, trace=trace)


class Asking:
    """In the place of the queue of a delivery, and of the slot of its handler: every wish goes to the worker."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.several: list[AnyHeld] = []
        self.delivery: AnyHeld | None = None
        self.engine = self
        self.name = ""

    def leave(self) -> None:
        self._ask(Word("leave"))

    def enter(self) -> None:
        self._ask(Word("enter"))

    async def enter_async(self) -> None:
        self.enter()

    def _settle_one(self, settlement: Settlement) -> Settled:
        settle = checked(settlement, self.several[0].queue)
        place = self._place(settle.position)
        self._ask(Word("settle", place, str(settle.event), settle.reason, settle.delay_seconds))
        return Settled(settle.id, None)

    def extend(self, queue: str, group: str, leases: Sequence[tuple[int, int]], seconds: float) -> list[int | None]:
        return [self._ask(Word("extend", self._place(position), seconds=seconds)) for _, position in leases]

    def _run(self, operation: Callable[[], Any]) -> Any:
        return operation()

    def _place(self, position: int) -> int:
        return next(place for place, delivery in enumerate(self.several) if delivery.position == position)

    def _ask(self, word: Word) -> Any:
        self._connection.send_bytes(msgspec.msgpack.encode(word))
        kind, answer = msgspec.msgpack.decode(self._connection.recv_bytes())
        if kind is not None:
            raise (LeaseLost if kind == "LeaseLost" else PenstockError)(answer)
        return answer
