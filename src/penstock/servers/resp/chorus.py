"""The same command, said by many clients at once: one call for all of them.

Clients that work alike say the same again and again, and under load many of them within the same turn of the event
loop. So a plain command is not begun at once: it joins those that can be one call with it, and all of them are begun
together at the end of the turn. What costs time is then done once for all, and only words and replies are each
client's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.domain.errors import PenstockError
from penstock.servers.resp.table import Command, Order
from penstock.servers.resp.work import Work

if TYPE_CHECKING:
    from penstock.servers.resp.door import Door
    from penstock.servers.resp.slot import Slot

# Clients whose commands become one call: others want their turn.
MOST_VOICES = 1_000


class Rest(NamedTuple):
    """Replies to the first calls of a slot, and the calls that are made when the client has read them."""

    data: bytes
    calls: Sequence[list[bytes]]


class Chorus:
    def __init__(self, door: Door) -> None:
        self._door = door
        self._parts: dict[Hashable, Part] = {}

    def join(self, command: Command, key: Hashable, slot: Slot) -> None:
        """`slot` has the client's calls; those with an equal `key` become one."""
        part = self._parts.get(key)
        if part is not None and len(part.slots) < MOST_VOICES:
            part.slots.append(slot)
            return
        if part is not None:
            self.sing()
        if not self._parts:
            asyncio.get_running_loop().call_soon(self.sing)
        self._parts[key] = Part(self._door, command, slot)

    def sing(self) -> None:
        """Begin what has come together, in the order in which each began to."""
        if self._parts:
            parts, self._parts = self._parts, {}
            for part in parts.values():
                part.begin()


class Part:
    """Calls that are one, and where the outcome goes: to the slot of each."""

    __slots__ = ("_command", "_door", "_finish", "slots")

    def __init__(self, door: Door, command: Command, first: Slot) -> None:
        self._door = door
        self._command = command
        self._finish: Any = None
        self.slots = [first]

    def begin(self) -> None:
        assert self._command.several is not None
        try:
            work = self._command.several.begin(self._door, self.slots)
            work.call.callers = len(self.slots)
            self._finish = work.finish
            self._door.submit(work, self)
        except PenstockError as error:
            self.set_exception(error)

    def cancelled(self) -> bool:
        return self._command.order is Order.RECEIVE and all([slot.connection.is_gone for slot in self.slots])

    def set_result(self, outcome: Any) -> None:
        try:
            answers: Sequence[bytes | Work | Rest] = self._finish(outcome)
        except Exception as error:
            self.set_exception(error)
            return
        for slot, answer in zip(self.slots, answers, strict=True):
            if isinstance(answer, Work):
                slot.connection.submit(slot, answer)
            elif isinstance(answer, Rest):
                slot.put_part(answer.data, answer.calls)
            else:
                slot.fill(answer)

    def set_exception(self, error: BaseException) -> None:
        for slot in self.slots:
            slot.set_exception(error)


def dealt(slots: Sequence[Slot], replies: list[bytes]) -> list[bytes]:
    """From a reply for each call to an answer for each slot."""
    if len(replies) == len(slots):
        return replies
    answers: list[bytes] = []
    start = 0
    for slot in slots:
        end = start + len(slot.calls)
        answers.append(b"".join(replies[start:end]))
        start = end
    return answers
