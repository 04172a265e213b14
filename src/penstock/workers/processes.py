"""Slots that are processes: a function that keeps a core busy, or may crash, runs in a process of its own.

Each slot is a thread that hands its work to a child and waits for the answer. So a handler can be ended from outside,
and a child that dies takes only its own message with it. Children hold no store: what their handlers settle or extend
goes through the worker. A slot counts once its child has imported the handler, so no message is received for a child
that may never be able to run it; and it ends with its child.
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
from penstock.domain.names import shown
from penstock.domain.settlement import Ack, Nak, Reject, Reschedule, Retry, Signal
from penstock.workers.child import DEFERRED, Word, decode_word, encode_work, work_forever
from penstock.workers.lease_batch import AnyHeld
from penstock.workers.source import Source, about_delivery
from penstock.workers.threads import ThreadSlot, ThreadSlots

logger = logging.getLogger("penstock.worker")
# A process costs more to make than a thread: an idle one is kept longer.
IDLE_SECONDS = 300.0
END_SECONDS = 2.0
# A thread that was given up first learns how its child died and then ends it.
CLOSE_SECONDS = 3 * END_SECONDS
START_SECONDS = 300.0
_spawn = multiprocessing.get_context("spawn")


class Child:
    """Made by the thread of its slot, and ended before that thread ends: Linux kills it together with the thread."""

    def __init__(self, source: Source) -> None:
        handler = source.handler
        self.connection, theirs = _spawn.Pipe()
        arguments = (theirs, handler.queue, handler.batch_size is not None, os.getpid())
        self.process = _spawn.Process(target=work_forever, args=arguments, name=f"penstock-{source.name}", daemon=True)
        _start_without_signals(self.process)
        theirs.close()
        # Not as an argument: what fails to import while arguments are read ends the child without a word.
        with contextlib.suppress(OSError):  # the child has ended already, and `await_ready` finds out
            self.connection.send(handler.function)

    def await_ready(self) -> str | None:
        """None when the child has imported its handler, else what went wrong."""
        try:
            if not self.connection.poll(START_SECONDS):
                self.kill()
                return f"it was not ready after {START_SECONDS:g} seconds"
            word = decode_word(self.connection.recv_bytes())
        except (EOFError, OSError):
            return self._death()
        return None if word.say == "ready" else word.reason

    def kill(self) -> None:
        """From any thread, also when it has ended already: that is why nobody closes the process object."""
        self.process.kill()

    def end(self) -> None:
        """Politely; it has nothing to do."""
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
    """A signal to the whole process group must not end a child that cannot deal with it yet: the child inherits the
    mask, and lifts it when it has set its own handlers."""
    if not hasattr(signal, "pthread_sigmask"):
        process.start()
        return
    # Started on first use otherwise, which would lift the mask.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, DEFERRED)
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class ProcessSlots(ThreadSlots):
    """Each thread makes its child, asks it, and ends it when it ends itself. Other threads only kill a child."""

    idle_seconds = IDLE_SECONDS

    def __init__(self, source: Source) -> None:
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
    def can_grow(self) -> bool:  # type: ignore[override]  # a constant where threads are made at once
        with self._changed:
            return self._room_to_grow() > 0

    def start(self) -> None:
        """The first child shows at once whether the handler can be imported."""
        self.grow()

    def grow(self) -> None:
        """As many again: what a single message needs is one, and a backlog gets all of them soon."""
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

    def kick(self) -> None:
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
        if self._stopping:  # before there was a child that could be killed
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

    def _left_behind(self, slot: ThreadSlot) -> None:
        """A process can be ended: nothing is left behind."""
        self._ready.discard(slot)
        self._children[slot].kill()

    def _dismiss(self, slot: ThreadSlot) -> None:
        with self._changed:
            self._ready.discard(slot)
        super()._dismiss(slot)
        child = self._children.get(slot)
        if child is not None:
            child.end()
            del self._children[slot]  # not before: whoever closes the slots waits for the threads of these
        self.kick()
        self.source.wake()

    # -- calls -----------------------------------------------------------------------------------------------------

    def _call_child(self, given: Any, payloads: Any = None) -> Any:
        """In the place of the handler."""
        slot = current_slot.get()
        assert isinstance(slot, ThreadSlot)
        return self._ask(slot, given) if isinstance(given, list) else self._ask(slot, [given])[0]

    def _ask(self, slot: ThreadSlot, several: list[AnyHeld]) -> list[Signal | None]:
        """The child's outcomes, one for each message: None for an ack."""
        child = self._children[slot]
        try:
            child.connection.send_bytes(encode_work(several))
            while True:
                word = decode_word(child.connection.recv_bytes())
                if word.say == "result":
                    return self._outcomes(several, word)
                child.connection.send_bytes(msgspec.msgpack.encode(self._answer(slot, several, word)))
        except (EOFError, OSError):
            return self._died(slot, child, several)

    def _died(self, slot: ThreadSlot, child: Child, several: list[AnyHeld]) -> list[Signal | None]:
        """Nobody knows how far it came: at most once means not again."""
        with self._changed:
            self._ready.discard(slot)
            slot.is_over = True
        why = child.death()
        logger.error("%s at message %s", why, several[0].id, extra=about_delivery(several[0]))
        at_most_once = self.source.policy.at_most_once
        return [Reject(why) if at_most_once else Retry(None, why) for _ in several]

    def _outcomes(self, several: list[AnyHeld], word: Word) -> list[Signal | None]:
        if word.trace:
            about = about_delivery(several[0])
            logger.warning("handler of message %s raised:\n%s", several[0].id, word.trace, extra=about)
        return [None if one is None else _signal(*one) for one in word.outcomes]

    def _answer(self, slot: ThreadSlot, several: list[AnyHeld], word: Word) -> Any:
        """What the child's handler asked for; an error goes back as text."""
        delivery: Any = several[word.place]
        try:
            if word.say == "leave":
                self.leave(slot)
            elif word.say == "enter":
                self.enter(slot)
            elif word.say == "extend":
                delivery.extend(word.seconds)
                return [None, delivery._row[-1]]
            elif word.say == "settle":
                delivery._settle(_settlement(delivery, word))
        except PenstockError as error:
            return [type(error).__name__ if isinstance(error, LeaseLost) else "PenstockError", str(error)]
        return [None, None]


def _signal(event: str, reason: str | None, delay_seconds: float | None) -> Signal:
    if event == Event.REJECT:
        return Reject(reason)
    if event == Event.RESCHEDULE:
        return Reschedule(delay_seconds or 0, reason)
    return Retry(delay_seconds, reason)


def _settlement(delivery: AnyHeld, word: Word) -> Ack | Nak | Reject | Reschedule:
    if word.event == Event.ACK:
        return Ack(delivery, word.reason)
    if word.event == Event.NAK:
        return Nak(delivery, word.reason, word.seconds)
    if word.event == Event.REJECT:
        return Reject(delivery, word.reason)
    return Reschedule(delivery, word.seconds or 0, word.reason)
