"""XACKDEL, XDELEX and XNACK: acknowledge and delete entries, delete those that no group needs, and release them."""

from __future__ import annotations

import msgspec

from penstock.domain.lifecycle import LIVE, Event
from penstock.domain.settlement import Settle
from penstock.servers.access import Right
from penstock.servers.resp.arguments import GroupName, QueueName, Words
from penstock.servers.resp.commands.entries import BEYOND, message_entry_id, read_parts
from penstock.servers.resp.commands.stream_group_read import find_lease
from penstock.servers.resp.commands.stream_groups import check_group
from penstock.servers.resp.encoder import Reply
from penstock.servers.resp.errors import CommandError, quoted
from penstock.servers.resp.session import Begun, ClientSession
from penstock.servers.resp.table import Order, command

FAMILY = "stream"
# The reply for each entry.
NOT_THERE, DELETED, STILL_NEEDED = -1, 1, 2
MODES = {b"SILENT": Event.RELEASE, b"FAIL": Event.NAK, b"FATAL": Event.REJECT}


class Chosen(msgspec.Struct, frozen=True):
    """The entries, and whether they stay until every group has acknowledged them. Removed entries leave no references
    behind, so KEEPREF and DELREF are the same."""

    names: list[bytes]
    if_acked: bool = False


def read_chosen(words: list[bytes]) -> Chosen:
    """Parse `[KEEPREF|DELREF|ACKED] IDS numids id [id ...]`, in any order."""
    policies: list[bytes] = []
    names: list[bytes] = []
    at = 0
    while at < len(words):
        word = words[at].upper()
        if word in (b"KEEPREF", b"DELREF", b"ACKED") and not policies:
            policies.append(word)
            at += 1
        elif word == b"IDS" and not names:
            at, names = read_ids(words, at)
        else:
            raise CommandError(f"ERR syntax error: {quoted(words[at])} is not expected here")
    if not names:
        raise CommandError("ERR syntax error: IDS numids id [id ...] is missing")
    return Chosen(names, policies == [b"ACKED"])


def read_ids(words: list[bytes], at: int) -> tuple[int, list[bytes]]:
    """Parse `IDS 2 1-1 2-2`; also returns where it ends."""
    count = words[at + 1] if at + 1 < len(words) else b""
    if not count.isdigit() or len(count) > 9 or not int(count):
        raise CommandError("ERR Number of IDs must be a positive integer")
    ids = words[at + 2 : at + 2 + int(count)]
    if len(ids) != int(count):
        raise CommandError("ERR The `numids` parameter must match the number of arguments")
    parts = [read_parts(one) for one in ids]
    return at + 2 + len(ids), [b"%d-%d" % (milliseconds, position or 0) for milliseconds, position in parts]


@command(
    "XACKDEL",
    Order.TURN,
    Right.RECEIVE,
    FAMILY,
    usage="XACKDEL key group [KEEPREF|DELREF|ACKED] IDS numids id [id ...]",
    least=3,
)
def acknowledge_and_delete(session: ClientSession, queue: QueueName, group: GroupName, words: Words) -> Begun:
    """Acknowledge and delete entries. Returns 1 for each, 2 if another group still needs it, -1 if not pending."""
    chosen = read_chosen(words)
    session.check(Right.MANAGE, queue)
    engine = session.backend.engine

    def one(name: bytes) -> int:
        lease = find_lease(session.backend, queue, group, name)
        if lease is None:
            return NOT_THERE
        [settled] = engine.settle(queue, group, [Settle(Event.ACK, lease.id, lease.position, lease.token)])
        if settled.error is not None:
            raise settled.error
        return _delete(session, queue, lease.id, lease.position, chosen.if_acked)

    return session.backend.write(lambda: [one(name) for name in chosen.names])


@command(
    "XDELEX",
    Order.TURN,
    Right.MANAGE,
    FAMILY,
    usage="XDELEX key [KEEPREF|DELREF|ACKED] IDS numids id [id ...]",
    least=3,
)
def delete(session: ClientSession, queue: QueueName, words: Words) -> Begun:
    """Delete entries. Returns 1 for each, 2 if a group still needs it (with ACKED), -1 if it does not exist."""
    chosen = read_chosen(words)
    engine = session.backend.engine

    def one(name: bytes) -> int:
        position = read_parts(name)[1] or 0
        if not 0 < position < BEYOND:
            return NOT_THERE
        found = engine.browse(queue, position - 1, position, 1)
        if not found or message_entry_id(found[0]).encode() != name:
            return NOT_THERE
        return _delete(session, queue, found[0].id, position, chosen.if_acked)

    return session.backend.write(lambda: [one(name) for name in chosen.names])


def _delete(session: ClientSession, queue: str, message_id: str, position: int, if_acked: bool) -> int:
    """Inside an operation."""
    if if_acked and _is_needed(session, queue, message_id, position):
        return STILL_NEEDED
    session.backend.engine.remove(queue, [message_id])
    return DELETED


def _is_needed(session: ClientSession, queue: str, message_id: str, position: int) -> bool:
    """Whether a group has not read the entry yet, has it pending, or will get it again."""
    engine = session.backend.engine
    trail = engine.audit(queue, message_id)
    for group in engine.groups(queue):
        own = [entry for entry in trail if entry.group == group]
        [standing] = engine.states(queue, group, [message_id])
        # An entry that the group was moved past is ready too, but has no audit entry there.
        if position > engine.reached(queue, group) or (own and standing is not None and standing.state in LIVE):
            return True
    return False


@command(
    "XNACK",
    Order.TURN,
    Right.RECEIVE,
    FAMILY,
    usage="XNACK key group SILENT|FAIL|FATAL IDS numids id [id ...]",
    least=4,
)
def give_back(session: ClientSession, queue: QueueName, group: GroupName, words: Words) -> Begun:
    """Release entries unacknowledged. Returns how many. SILENT does not count the attempt, FATAL rejects."""
    event, names = MODES.get(words[0].upper()), _read_nack(words)
    if event is None:
        raise CommandError(f"ERR syntax error: {quoted(words[0])} is none of SILENT, FAIL and FATAL")
    engine = session.backend.engine

    def operation() -> int:
        check_group(session, queue, group, "XNACK")
        leases = [find_lease(session.backend, queue, group, name) for name in dict.fromkeys(names)]
        settles = [
            Settle(event, lease.id, lease.position, lease.token, f"XNACK {words[0].decode().upper()}", delay_seconds=0)
            for lease in leases
            if lease is not None
        ]
        return sum(settled.ok for settled in engine.settle(queue, group, settles)) if settles else 0

    return session.backend.write(operation, _counted)


def _counted(count: int) -> Reply:
    return count


def _read_nack(words: list[bytes]) -> list[bytes]:
    if words[1].upper() != b"IDS":
        raise CommandError(f"ERR syntax error: {quoted(words[1])} where IDS numids id [id ...] is expected")
    at, names = read_ids(words, 1)
    for word in words[at : at + 1]:
        if word.upper() == b"RETRYCOUNT":
            raise CommandError("ERR RETRYCOUNT is not possible here: the store counts the attempts itself")
        if word.upper() == b"FORCE":
            raise CommandError("ERR FORCE is not possible here: an entry that is not pending needs no XNACK")
        raise CommandError(f"ERR syntax error: {quoted(word)} is not expected here")
    return names
