"""Which query reads as a group: one at a time, so that a group's place is one place.

A query notes in the store's ledger that the group is its own, and again every few seconds while Spark asks it for
offsets. A note is over when its process is gone, or after a minute's silence. A query that finds the note of another
one that is alive ends with an error; so does one whose group another query has taken over in a long silence.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from uuid import uuid4

import msgspec

from penstock.domain.errors import GroupMisused
from penstock.domain.names import shown
from penstock.engines.contract import Engine

KIND = "stream"
TOUCH = 5_000_000
SILENT = 60_000_000


class Note(msgspec.Struct, frozen=True):
    """Who reads a queue as a group, and when it said so."""

    query: str
    host: str
    process: int
    at: int


class Holder:
    """One query, and the queues whose group it has."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.query = uuid4().hex
        self._touched: dict[str, int] = {}

    def hold(self, engine: Engine, queues: Iterable[str]) -> None:
        """Note that the group is this query's; GroupMisused when it is another one's."""
        now = engine.now()
        due = [queue for queue in queues if now - self._touched.get(queue, 0) >= TOUCH]
        if not due:
            return
        found = {self._key(queue): engine.ledger(KIND, self._key(queue)).get(self._key(queue)) for queue in due}
        for queue in due:
            self._check(queue, found[self._key(queue)], now)
        note = Note(self.query, socket.gethostname(), os.getpid(), now)
        text = msgspec.json.encode(note).decode()
        if not engine.record(KIND, dict.fromkeys(found, text), (), found):
            raise self._error(due[0], "has just been taken by another query")
        self._touched.update(dict.fromkeys(due, now))

    def _check(self, queue: str, text: str | None, now: int) -> None:
        if text is None:
            return
        note = msgspec.json.decode(text, type=Note)
        if note.query == self.query:
            return
        if queue in self._touched:
            raise self._error(queue, f"was taken by another query, of process {note.process} on {note.host}")
        if _is_alive(note, now):
            raise self._error(queue, f"is being read by another query, of process {note.process} on {note.host}")

    def _error(self, queue: str, told: str) -> GroupMisused:
        return GroupMisused(
            f"group {shown(self.group)} of queue {shown(queue)} {told}: give each query a group of its own"
        )

    def _key(self, queue: str) -> str:
        return msgspec.json.encode([queue, self.group]).decode()


def _is_alive(note: Note, now: int) -> bool:
    if now - note.at > SILENT or (note.host, note.process) == (socket.gethostname(), os.getpid()):
        return False
    if note.host != socket.gethostname():
        return True
    try:
        os.kill(note.process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
