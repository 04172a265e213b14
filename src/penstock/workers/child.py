"""The child process of a process slot: calls the handler, and sends everything that needs the store to the worker."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, cast

import msgspec

from penstock.client.executor import Executor
from penstock.client.settlements import checked
from penstock.client.slot import current_slot
from penstock.domain.errors import LeaseLost, PenstockError
from penstock.domain.settlement import Settled, Settlement, Signal, reason_text
from penstock.engines.contract import Engine, Receipt
from penstock.workers.lease_batch import AnyDelivery, WorkerDelivery
from penstock.workers.outcome import batch_outcomes, outcome_of
from penstock.workers.signature import named, read_signature

Outcome = tuple[str, str | None, float | None, str | None]
# Signals that stay blocked until the child has set its handlers.
DEFERRED = (signal.SIGTERM, signal.SIGINT)
PR_SET_PDEATHSIG = 1


class CallRequest(msgspec.Struct, array_like=True):
    """Worker to child: the deliveries of one call."""

    token: int
    queue: str
    group: str
    consumer: str
    salt: int
    rows: list[Any]


class ChildMessage(msgspec.Struct, array_like=True):
    """Child to worker: the result of a call, or a request that needs the store."""

    kind: str
    place: int = 0
    event: str = ""
    reason: str | None = None
    seconds: float | None = None
    outcomes: list[Outcome | None] = []
    trace: str = ""
    code: str | None = None


decode_request = msgspec.msgpack.Decoder(CallRequest).decode
decode_message = msgspec.msgpack.Decoder(ChildMessage).decode


def encode_request(several: Sequence[AnyDelivery]) -> bytes:
    receipt = several[0]._receipt
    rows = [delivery._row for delivery in several]
    return msgspec.msgpack.encode(
        CallRequest(receipt.token, receipt.queue, receipt.group, receipt.consumer, receipt.salt, rows)
    )


def serve_calls(connection: Connection, queue: str, is_batch: bool, parent: int) -> None:
    """The main function of the child: serve calls until the worker closes the pipe."""
    _die_with_parent(parent)
    _ignore_signals()
    proxy = WorkerProxy(connection)
    current_slot.set(proxy)
    try:
        function = connection.recv()
        signature = read_signature(function, f"handler {named(function)} of queue {queue!r}", is_batch)
    except BaseException as error:
        traceback.print_exc()
        connection.send_bytes(msgspec.msgpack.encode(ChildMessage("failed", reason=reason_text(error))))
        return
    connection.send_bytes(msgspec.msgpack.encode(ChildMessage("ready")))
    while True:
        try:
            request = decode_request(connection.recv_bytes())
        except (EOFError, OSError):
            return
        connection.send_bytes(msgspec.msgpack.encode(_run(request, signature, is_batch, proxy)))


def _ignore_signals() -> None:
    """Ctrl-C reaches every process of a terminal, and a service manager signals all processes of a service: the worker
    decides what becomes of its children. SIGTERM is not ignored but handled by doing nothing, because programs that a
    handler starts inherit what is ignored, and could not be terminated."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, DEFERRED)


def _die_with_parent(parent: int) -> None:
    """Exit when the worker is killed: nobody would receive the outcome of the handler. Linux kills the child with its
    parent; elsewhere a thread waits for the parent's exit, which does not end a handler that never releases the GIL."""
    threading.Thread(target=_exit_with_parent, name="penstock-parent", daemon=True).start()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before prctl was called
            os._exit(1)


def _exit_with_parent() -> None:
    process = multiprocessing.parent_process()
    if process is not None:
        wait([process.sentinel])
        os._exit(1)


def _run(request: CallRequest, signature: Any, is_batch: bool, proxy: WorkerProxy) -> ChildMessage:
    receipt = Receipt(
        request.token,
        request.queue,
        request.group,
        request.consumer,
        request.salt,
        [tuple(row) for row in request.rows],
    )
    several: list[AnyDelivery] = [WorkerDelivery(row, receipt, proxy) for row in receipt.rows]
    proxy.several = several
    proxy.delivery = several[0]
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
            trace = reason_text(traceback.format_exc()) or ""
    proxy.delivery = None
    settles = batch_outcomes(several, result) if is_batch else [outcome_of(several[0], result)]
    outcomes = [
        None if one is None else (str(one.event), reason_text(one.reason), one.delay_seconds, one.code)
        for one in settles
    ]
    return ChildMessage("result", outcomes=outcomes, trace=trace)


class WorkerProxy:
    """Stands in for the queue of a delivery and for the slot of its handler; forwards every request to the worker."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.several: list[AnyDelivery] = []
        self.delivery: AnyDelivery | None = None
        self.engine = self  # the part of an engine that a delivery uses
        self.executor = Executor(cast(Engine, self))
        self.name = ""

    def leave(self) -> None:
        self._ask(ChildMessage("leave"))

    def enter(self) -> None:
        self._ask(ChildMessage("enter"))

    async def enter_async(self) -> None:
        self.enter()

    def _settle_one(self, settlement: Settlement) -> Settled:
        settle = checked(settlement, self.several[0].queue)
        place = self._place(settle.position)
        self._ask(
            ChildMessage("settle", place, str(settle.event), settle.reason, settle.delay_seconds, code=settle.code)
        )
        return Settled(settle.id, None)

    def end_interrupted(self) -> None:
        """Nothing: the worker has the engine."""

    def extend(self, queue: str, group: str, leases: Sequence[tuple[int, int]], seconds: float) -> list[int | None]:
        return [self._ask(ChildMessage("extend", self._place(position), seconds=seconds)) for _, position in leases]

    def cancelled(self, queue: str, group: str, positions: Sequence[int]) -> list[bool]:
        return [bool(self._ask(ChildMessage("cancelled", self._place(position)))) for position in positions]

    def _place(self, position: int) -> int:
        return next(place for place, delivery in enumerate(self.several) if delivery.position == position)

    def _ask(self, message: ChildMessage) -> Any:
        self._connection.send_bytes(msgspec.msgpack.encode(message))
        kind, answer = msgspec.msgpack.decode(self._connection.recv_bytes())
        if kind is not None:
            raise (LeaseLost if kind == "LeaseLost" else PenstockError)(answer)
        return answer
