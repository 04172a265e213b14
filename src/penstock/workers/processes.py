"""Slots that are processes: a function that keeps a core busy, or may crash, runs in a process of its own.

Each slot is a thread that hands its work to a child and waits for the answer. So a handler can be ended from outside,
and a child that dies takes only its own message with it. Children hold no store: what their handlers settle or extend
goes through the worker.
"""

from __future__ import annotations

import logging
import math
import multiprocessing
import signal
import time
from typing import Any

import msgspec

from penstock.client.slot import current_slot
from penstock.domain.errors import LeaseLost, PenstockError
from penstock.domain.lifecycle import Event
from penstock.domain.settlement import Ack, Nak, Reject, Reschedule, Retry, Signal
from penstock.workers.child import Word, decode_word, encode_work, work_forever
from penstock.workers.source import Source, about_delivery
from penstock.workers.take import AnyHeld
from penstock.workers.threads import ThreadSlot, ThreadSlots

logger = logging.getLogger("penstock.worker")
# A process costs more to make than a thread: an idle one is kept longer.
IDLE_SECONDS = 300.0
END_SECONDS = 2.0
# A thread that was given up first learns how its child died and then ends it.
CLOSE_SECONDS = 3 * END_SECONDS
START_SECONDS = 60.0
_spawn = multiprocessing.get_context("spawn")


class Child:
    def __init__(self, source: Source) -> None:
        handler = source.handler
        self.connection, theirs = _spawn.Pipe()
        is_batch = handler.batch_size is not None
        arguments = (theirs, handler.function, handler.queue, is_batch)
        self.process = _spawn.Process(target=work_forever, args=arguments, name=f"penstock-{source.name}", daemon=True)
        self.process.start()
        theirs.close()

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
        self.process.join(END_SECONDS)
        code = self.process.exitcode
        how = f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name
        return f"the handler's process died ({how})"


class ProcessSlots(ThreadSlots):
    """Each thread makes its child, asks it, and ends it when it ends itself. Other threads only kill a child."""

    idle_seconds = IDLE_SECONDS

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.call = self._call_child
        self._children: dict[ThreadSlot, Child] = {}

    def close(self) -> None:
        ends = time.monotonic() + CLOSE_SECONDS
        for slot, child in list(self._children.items()):
            slot.thread.join(max(0.0, ends - time.monotonic()))
            child.kill()

    def _end_handler(self, slot: ThreadSlot) -> None:
        child = self._children.get(slot)
        if child is not None:
            child.kill()

    def _dismiss(self, slot: ThreadSlot) -> None:
        super()._dismiss(slot)
        child = self._children.get(slot)
        if child is not None:
            child.end()
            del self._children[slot]

    def _call_child(self, given: Any, payloads: Any = None) -> Any:
        """In the place of the handler."""
        slot = current_slot.get()
        assert isinstance(slot, ThreadSlot)
        return self._ask(slot, given) if isinstance(given, list) else self._ask(slot, [given])[0]

    def _ask(self, slot: ThreadSlot, several: list[AnyHeld]) -> list[Signal | None]:
        """The child's outcomes, one for each message: None for an ack."""
        child = self._children.get(slot)
        is_new = child is None or not child.process.is_alive()
        if child is None or is_new:
            child = self._children[slot] = Child(self.source)
        if slot.given_up is not None:  # before there was a child that could be killed
            child.kill()
        try:
            if is_new:
                self._await_ready(slot, child)
            child.connection.send_bytes(encode_work(several))
            while True:
                word = decode_word(child.connection.recv_bytes())
                if word.say == "result":
                    return self._outcomes(several, word)
                child.connection.send_bytes(msgspec.msgpack.encode(self._answer(slot, several, word)))
        except (EOFError, OSError):
            return self._died(child, several)

    def _await_ready(self, slot: ThreadSlot, child: Child) -> None:
        """Importing the handler is not the handler's time, but it has an end too."""
        slot.began_at = math.inf
        if not child.connection.poll(START_SECONDS):
            child.kill()
        child.connection.recv_bytes()
        slot.began_at = time.monotonic()

    def _died(self, child: Child, several: list[AnyHeld]) -> list[Signal | None]:
        """Nobody knows how far it came: at most once means not again."""
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
