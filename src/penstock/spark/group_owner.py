"""Ownership of a stream group: one query at a time, so that the group has one cursor.

A query writes an ownership note to the store's ledger and renews it every few seconds while Spark asks for offsets. The
note expires when its process has ended, or after a minute without renewal. A query that finds another live owner fails,
and so does one whose expired note another query has replaced.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from uuid import uuid4

import msgspec

from penstock.domain.errors import GroupMisused
from penstock.domain.validation import shown
from penstock.engines.contract import Engine

KIND = "stream"
RENEW_MICROS = 5_000_000
EXPIRY_MICROS = 60_000_000


class OwnerNote(msgspec.Struct, frozen=True):
    """The owner of a group, and when it last renewed."""

    query: str
    host: str
    process: int
    at: int


class GroupOwner:
    """One query, and the queues for which it owns the group."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.query = uuid4().hex
        self._renewed: dict[str, int] = {}

    def hold(self, engine: Engine, queues: Iterable[str]) -> None:
        """Acquire or renew ownership; GroupMisused when another query has it."""
        now = engine.now()
        due = [queue for queue in queues if now - self._renewed.get(queue, 0) >= RENEW_MICROS]
        if not due:
            return
        found = {self._key(queue): engine.ledger(KIND, self._key(queue)).get(self._key(queue)) for queue in due}
        for queue in due:
            self._check(queue, found[self._key(queue)], now)
        note = OwnerNote(self.query, socket.gethostname(), os.getpid(), now)
        text = msgspec.json.encode(note).decode()
        if not engine.record(KIND, dict.fromkeys(found, text), (), found):
            raise self._error(due[0], "has just been taken by another query")
        self._renewed.update(dict.fromkeys(due, now))

    def _check(self, queue: str, text: str | None, now: int) -> None:
        if text is None:
            return
        note = msgspec.json.decode(text, type=OwnerNote)
        if note.query == self.query:
            return
        if queue in self._renewed:
            raise self._error(queue, f"was taken by another query, of process {note.process} on {note.host}")
        if _is_alive(note, now):
            raise self._error(queue, f"is being read by another query, of process {note.process} on {note.host}")

    def _error(self, queue: str, reason: str) -> GroupMisused:
        return GroupMisused(
            f"group {shown(self.group)} of queue {shown(queue)} {reason}: give each query a group of its own"
        )

    def _key(self, queue: str) -> str:
        return msgspec.json.encode([queue, self.group]).decode()


def _is_alive(note: OwnerNote, now: int) -> bool:
    if now - note.at > EXPIRY_MICROS or (note.host, note.process) == (socket.gethostname(), os.getpid()):
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
