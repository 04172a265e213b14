"""Slots that are processes, for handlers that are CPU-bound or may crash.

Each slot is a thread that sends its calls to a child process and waits for the result. A handler can be killed, and a
child that dies takes only its own message with it. Children do not open the store: their handlers settle and extend
through the worker. A slot counts towards the capacity once its child has imported the handler, so no message is
received for a child that cannot run it; it ends with its child.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import time
from multiprocessing import resource_tracker
from typing import Any

import msgspec

from penstock.client.slot import current_slot
from penstock.domain.errors import HandlerUnavailable, LeaseLost, PenstockError
from penstock.domain.lifecycle import Event
from penstock.domain.settlement import Ack, Nak, Reject, Reschedule, Retry, Signal
from penstock.domain.validation import shown
from penstock.workers.child import DEFERRED, ChildMessage, decode_message, encode_request, serve_calls
from penstock.workers.error_trace import shortened
from penstock.workers.lease_batch import AnyDelivery
from penstock.workers.source import QueueSource, about_delivery
from penstock.workers.threads import ThreadSlot, ThreadSlots

logger = logging.getLogger("penstock.worker")
# Processes start slower than threads, so idle ones are kept longer.
IDLE_SECONDS = 300.0
END_SECONDS = 2.0
# A thread whose call was given up first waits for the exit code of its child, then reaps it.
CLOSE_SECONDS = 3 * END_SECONDS
START_SECONDS = 300.0
_spawn = multiprocessing.get_context("spawn")


class Child:
    """Started by the thread of its slot and ended before that thread exits: Linux kills the child with the thread."""

    def __init__(self, source: QueueSource) -> None:
        handler = source.handler
        self.connection, theirs = _spawn.Pipe()
        arguments = (theirs, handler.queue, handler.batch_size is not None, os.getpid())
        self.process = _spawn.Process(target=serve_calls, args=arguments, name=f"penstock-{source.name}", daemon=True)
        _start_without_signals(self.process)
        theirs.close()
        # Not as an argument of the process: an import error while arguments are unpickled would end the child silently.
        with contextlib.suppress(OSError):  # the child has ended already, and `await_ready` finds out
            self.connection.send(handler.function)

    def await_ready(self) -> str | None:
        """None when the child has imported its handler, else what went wrong."""
        try:
            if not self.connection.poll(START_SECONDS):
                self.kill()
                return f"it was not ready after {START_SECONDS:g} seconds"
            message = decode_message(self.connection.recv_bytes())
        except (EOFError, OSError):
            return self._death()
        return None if message.kind == "ready" else message.reason

    def kill(self) -> None:
        """From any thread, also after the exit; the process object is therefore never closed."""
        self.process.kill()

    def end(self) -> None:
        """End an idle child: close its pipe, and kill it if it does not exit."""
        self.connection.close()
        self.process.join(END_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def death(self) -> str:
        return f"the handler's process {self._death()}"

    def _death(self) -> str:
        self.process.join(END_SECONDS)
        code = self.process.exitcode
        how = f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name
        return f"died ({how})"


def _start_without_signals(process: Any) -> None:
    """A signal to the process group must not end a child that has not set its handlers yet: the child inherits the
    signal mask and unblocks the signals afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        process.start()
        return
    # Otherwise started on first use, which resets the mask.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, DEFERRED)
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class ProcessSlots(ThreadSlots):
    """Each thread starts, calls and ends its own child. Other threads only kill a child."""

    idle_seconds = IDLE_SECONDS

    def __init__(self, source: QueueSource) -> None:
        super().__init__(source)
        self.call = self._call_child
        self._children: dict[ThreadSlot, Child] = {}
        self._ready: set[ThreadSlot] = set()
        self._is_broken = False

    # -- how many --------------------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        with self._changed:
            return min(self.source.concurrency, sum(not slot.away for slot in self._ready))

    @property
    def can_grow(self) -> bool:
        with self._changed:
            return self._room_to_grow() > 0

    def start(self) -> None:
        """Start the first child at once, to find out whether the handler can be imported."""
        self.grow()

    def grow(self) -> None:
        """Double the number of children: a single message needs one, and a backlog soon gets all of them."""
        with self._changed:
            for _ in range(self._room_to_grow()):
                slot = ThreadSlot(self, len(self._slots) + 1)
                self._slots.add(slot)
                slot.thread.start()

    def _room_to_grow(self) -> int:
        """Called with the lock held."""
        if self._stopping or self._is_broken or len(self._slots) > len(self._ready):
            return 0
        present = sum(not slot.away for slot in self._slots)
        return min(max(1, present), self.source.concurrency - present)

    def notify(self) -> None:
        waiting = len(self.source.buffer)
        with self._changed:
            if waiting or self._returning:
                self._changed.notify_all()
        if waiting and not self.capacity:
            self.grow()

    # -- the life of a child ---------------------------------------------------------------------------------------

    def work(self, slot: ThreadSlot) -> None:
        try:
            problem = self._start_child(slot)
        except BaseException as error:
            problem = str(error)
        if problem is None:
            with self._changed:
                self._ready.add(slot)
                self._idle += 1
            self.source.wake()
            super().work(slot)
            return
        self._is_broken = True
        self._dismiss(slot)
        if not self._stopping:
            handler = self.source.handler
            self.source.fail(
                HandlerUnavailable(
                    f"the process for handler {handler.name} of queue {shown(handler.queue)} did not start: {problem}"
                )
            )

    def _start_child(self, slot: ThreadSlot) -> str | None:
        child = self._children[slot] = Child(self.source)
        if self._stopping:  # `stop` came before the child existed
            child.kill()
        return child.await_ready()

    def stop(self) -> None:
        super().stop()
        for slot, child in list(self._children.items()):
            if slot not in self._ready:
                child.kill()

    def close(self) -> None:
        ends = time.monotonic() + CLOSE_SECONDS
        for slot, child in list(self._children.items()):
            slot.thread.join(max(0.0, ends - time.monotonic()))
            child.kill()

    def _abandon(self, slot: ThreadSlot) -> None:
        """Kill the process: nothing is left behind."""
        self._ready.discard(slot)
        self._children[slot].kill()

    def _dismiss(self, slot: ThreadSlot) -> None:
        with self._changed:
            self._ready.discard(slot)
        super()._dismiss(slot)
        child = self._children.get(slot)
        if child is not None:
            child.end()
            del self._children[slot]  # last: `close` joins the threads of the remaining children
        self.notify()
        self.source.wake()

    # -- calls -----------------------------------------------------------------------------------------------------

    def _call_child(self, given: Any, payloads: Any = None) -> Any:
        """Called instead of the handler."""
        slot = current_slot.get()
        assert isinstance(slot, ThreadSlot)
        return self._ask(slot, given) if isinstance(given, list) else self._ask(slot, [given])[0]

    def _ask(self, slot: ThreadSlot, several: list[AnyDelivery]) -> list[Signal | None]:
        """The outcome of each message; None for an ack."""
        child = self._children[slot]
        try:
            child.connection.send_bytes(encode_request(several))
            while True:
                message = decode_message(child.connection.recv_bytes())
                if message.kind == "result":
                    return self._outcomes(several, message)
                child.connection.send_bytes(msgspec.msgpack.encode(self._answer(slot, several, message)))
        except (EOFError, OSError):
            return self._died(slot, child, several)

    def _died(self, slot: ThreadSlot, child: Child, several: list[AnyDelivery]) -> list[Signal | None]:
        """The handler may have done its work: an at_most_once message is not retried."""
        with self._changed:
            self._ready.discard(slot)
            slot.is_over = True
        why = child.death()
        logger.error("%s at message %s", why, several[0].id, extra=about_delivery(several[0]))
        at_most_once = self.source.policy.at_most_once
        return [Reject(why) if at_most_once else Retry(None, why) for _ in several]

    def _outcomes(self, several: list[AnyDelivery], message: ChildMessage) -> list[Signal | None]:
        if message.trace:
            about = about_delivery(several[0])
            logger.warning("handler of message %s raised:\n%s", several[0].id, message.trace, extra=about)
            failed = [one for one, outcome in zip(several, message.outcomes, strict=True) if outcome is not None]
            self.source.traces.update(
                {one.position: shortened(message.trace) for one in failed if one._settled is None}
            )
        return [None if one is None else _signal(*one) for one in message.outcomes]

    def _answer(self, slot: ThreadSlot, several: list[AnyDelivery], message: ChildMessage) -> Any:
        """Serve a request of the child's handler; an error is returned as text."""
        delivery: Any = several[message.place]
        try:
            if message.kind == "leave":
                self.leave(slot)
            elif message.kind == "enter":
                self.enter(slot)
            elif message.kind == "extend":
                delivery.extend(message.seconds)
                return [None, delivery._row[-1]]
            elif message.kind == "cancelled":
                return [None, delivery.is_cancelled()]
            elif message.kind == "settle":
                delivery._settle(_settlement(delivery, message))
        except PenstockError as error:
            return [type(error).__name__ if isinstance(error, LeaseLost) else "PenstockError", str(error)]
        return [None, None]


def _signal(event: str, reason: str | None, delay_seconds: float | None, code: str | None) -> Signal:
    if event == Event.REJECT:
        return Reject(reason, code=code)
    if event == Event.RESCHEDULE:
        return Reschedule(delay_seconds or 0, reason)
    return Retry(delay_seconds, reason, code=code)


def _settlement(delivery: AnyDelivery, message: ChildMessage) -> Ack | Nak | Reject | Reschedule:
    if message.event == Event.ACK:
        return Ack(delivery, message.reason)
    if message.event == Event.NAK:
        return Nak(delivery, message.reason, message.seconds, message.code)
    if message.event == Event.REJECT:
        return Reject(delivery, message.reason, code=message.code)
    return Reschedule(delivery, message.seconds or 0, message.reason)
