"""XSETID: validated as in Redis, and refused if it would change the ids of a queue."""

from __future__ import annotations

import msgspec

from penstock.servers.access import Right
from penstock.servers.resp.arguments import QueueName, Words, read_integer
from penstock.servers.resp.commands.entries import message_entry_id, read_parts
from penstock.servers.resp.commands.keyspace import exists
from penstock.servers.resp.commands.stream_chunks import browse
from penstock.servers.resp.encoder import OK, Reply
from penstock.servers.resp.errors import CommandError, quoted
from penstock.servers.resp.session import Begun, ClientSession
from penstock.servers.resp.table import Order, command

FAMILY = "stream"
SMALLER = "ERR The ID specified in XSETID is smaller than {}"
Id = tuple[int, int]


class _NewLastId(msgspec.Struct, frozen=True):
    last: Id
    added: int | None
    deleted: Id | None


@command(
    "XSETID",
    Order.TURN,
    Right.MANAGE,
    FAMILY,
    usage="XSETID key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]",
    least=1,
)
def set_id(session: ClientSession, queue: QueueName, words: Words) -> Begun:
    """Accepted for the id of the last entry, else refused: ids are made of time and position, and cannot be set."""
    wanted = _read(words)

    def operation() -> Reply:
        if not exists(session, queue):
            raise CommandError("ERR no such key")
        length = session.backend.engine.unread(queue)
        newest = browse(session, queue, 0, None, 1, backwards=True)
        last = _id(message_entry_id(newest[0]).encode()) if newest else None
        if last is not None and wanted.last < last:
            raise CommandError(SMALLER.format("the target stream top item"))
        if wanted.added is not None and wanted.added < length:
            raise CommandError("ERR The entries_added specified in XSETID is smaller than the target stream length")
        if wanted.last == last and wanted.added in (None, length) and wanted.deleted in (None, (0, 0)):
            return OK
        raise CommandError(
            "ERR XSETID cannot change a stream: its ids and counts follow from the time and place of its entries"
        )

    return session.backend.write(operation)


def _read(words: list[bytes]) -> _NewLastId:
    last, added, deleted = _id(words[0]), None, None
    if len(words) % 2 == 0:
        raise CommandError("ERR syntax error: XSETID takes ENTRIESADDED n and MAXDELETEDID id")
    for name, value in zip(words[1::2], words[2::2], strict=True):
        match name.upper():
            case b"ENTRIESADDED":
                added = read_integer(value)
                if added < 0:
                    raise CommandError("ERR entries_added must be positive")
            case b"MAXDELETEDID":
                deleted = _id(value)
                if last < deleted:
                    raise CommandError(SMALLER.format("the provided max_deleted_entry_id"))
            case _:
                raise CommandError(f"ERR syntax error: {quoted(name)} where ENTRIESADDED or MAXDELETEDID may stand")
    return _NewLastId(last, added, deleted)


def _id(word: bytes) -> Id:
    milliseconds, position = read_parts(word)
    return milliseconds, position or 0
