"""XADD with IDMP and IDMPAUTO: an entry that a producer sends again is added once.

Sending a message under an id that the queue has already is the same send, so the message id is derived from the
producer and the idempotent id. With IDMP it holds as long as the entry is kept, also for a concurrent retry or one on
another server. With IDMPAUTO the idempotent id is derived from the fields, which may be sent again on purpose later:
there the message id also depends on a time slot, and an entry counts as a repeat only within WINDOW_SECONDS.
"""

from __future__ import annotations

import hashlib
import uuid

import msgspec

from penstock.domain.errors import NotFound
from penstock.domain.message import Draft, Message
from penstock.domain.timestamps import EPOCH
from penstock.servers.resp.backend import NOW, sent
from penstock.servers.resp.commands.entries import message_entry_id
from penstock.servers.resp.errors import CommandError
from penstock.servers.resp.session import ClientSession

# Random, and must never change.
NAMESPACE = uuid.UUID("0b7f2f0a-3f0e-4c58-9f0c-6d2a4c1d7e53")
# The default of Redis.
WINDOW_SECONDS = 100
MICROSECONDS = 1_000_000


class Idempotence(msgspec.Struct, frozen=True):
    producer: bytes
    entry: bytes | None  # None: derived from the fields

    def send(self, session: ClientSession, queue: str, message: Draft, fields: list[bytes]) -> str:
        """Inside an operation: the id of the new entry, or of the one that it repeats."""
        engine = session.backend.engine
        if self.entry is not None:
            chosen = _identity(self.producer, self.entry)
        else:
            now = engine.now()
            stretch, entry = _stretch(now), _digest(fields)
            before = self._found(session, queue, _identity(self.producer, entry, stretch - 1))
            if before is not None and _created_at(before) > now - WINDOW_SECONDS * MICROSECONDS:
                return message_entry_id(before)
            chosen = _identity(self.producer, entry, stretch)
        options = msgspec.structs.replace(NOW, id=chosen)
        sent(session.backend.send_entries(queue, [(message[0], message[1], options)])[0])
        return message_entry_id(engine.find(queue, chosen))

    def _found(self, session: ClientSession, queue: str, message_id: str) -> Message | None:
        try:
            return session.backend.engine.find(queue, message_id)
        except NotFound:
            return None


def read_idempotence(words: list[bytes], at: int) -> tuple[int, Idempotence]:
    """Parse `IDMP producer-id idempotent-id` or `IDMPAUTO producer-id`; also returns where it ends."""
    count = 2 if words[at].upper() == b"IDMP" else 1
    given = words[at + 1 : at + 1 + count]
    if len(given) != count or not all(given):
        raise CommandError("ERR syntax error: IDMP takes a producer id and an idempotent id, IDMPAUTO a producer id")
    return at + 1 + count, Idempotence(given[0], given[1] if count == 2 else None)


def _identity(producer: bytes, entry: bytes, stretch: int | None = None) -> str:
    return str(uuid.uuid5(NAMESPACE, f"{producer.hex()}/{entry.hex()}/{'' if stretch is None else stretch}"))


def _stretch(now: int) -> int:
    """The number of the time slot: this one and the one before cover the last WINDOW_SECONDS."""
    return int(now // (WINDOW_SECONDS * MICROSECONDS))


def _digest(fields: list[bytes]) -> bytes:
    return hashlib.sha256(msgspec.msgpack.encode(fields)).digest()


def _created_at(message: Message) -> int:
    return (message.created_at - EPOCH) // EPOCH.resolution
