"""XGROUP and XREADGROUP: reading a stream as a group."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from penstock.client.aio.gathering import Call
from penstock.domain.lifecycle import Event
from penstock.domain.settlement import Settle
from penstock.engines.contract import POSITION, Receipt
from penstock.servers.resp.arguments import Text, Words, read_count, read_name
from penstock.servers.resp.commands.entries import Bound, Entry, message_entry, read_bound, read_parts, row_entry
from penstock.servers.resp.commands.streams import after_bound, upto_bound
from penstock.servers.resp.encoder import NO_ARRAY, OK, Pairs, Reply
from penstock.servers.resp.session import Begun, Session
from penstock.servers.resp.table import Order, Right, command
from penstock.servers.resp.words import CommandError, printable, quoted, unknown_subcommand, wrong_arity
from penstock.servers.resp.work import Waiting, Work

FAMILY = "stream"
READ_USAGE = (
    "XREADGROUP GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id ...]"
)
# Redis gives everything without COUNT; a reply has to end somewhere.
WITHOUT_COUNT = 10_000
NO_KEY = (
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM "
    "option to create an empty stream automatically."
)


# -- XGROUP ----------------------------------------------------------------------------------------------------------


@command(
    "XGROUP",
    Order.TURN,
    Right.MANAGE,
    FAMILY,
    usage="XGROUP CREATE|SETID|DESTROY|CREATECONSUMER|DELCONSUMER key group [...]",
)
def manage(session: Session, subcommand: Text, words: Words) -> Begun:
    """Make, move and remove groups of a stream."""
    run = MANAGE.get(subcommand.upper())
    if run is None:
        raise unknown_subcommand("XGROUP", subcommand.encode())
    if run is _help:
        return run(session, "", "", [])
    if len(words) < 2:
        raise wrong_arity(f"xgroup|{subcommand.lower()}")
    queue, group = read_name("queue")(words[0]), read_name("group")(words[1])
    session.check(Right.MANAGE, queue)
    return run(session, queue, group, words[2:])


def _create(session: Session, queue: str, group: str, words: list[bytes]) -> Begun:
    if not words:
        raise wrong_arity("xgroup|create")
    target, options = words[0], [word.upper() for word in words[1:]]
    makes = _group_options(options)
    engine = session.door.engine

    def operation() -> None:
        if not makes:
            _check_key(session, queue)
        session.door.make(queue)
        if group in engine.groups(queue):
            raise CommandError("BUSYGROUP Consumer Group name already exists")
        _move(session, queue, group, target)

    def finish(_: None) -> Reply:
        session.door.learn_group(queue, group)
        return OK

    if target != b"$":
        read_bound(target)
    return session.door.change(operation, finish)


def _group_options(options: list[bytes]) -> bool:
    at, makes = 0, False
    while at < len(options):
        if options[at] == b"MKSTREAM":
            makes = True
            at += 1
        elif options[at] == b"ENTRIESREAD" and at + 1 < len(options):
            at += 2
        else:
            raise CommandError(f"ERR syntax error: unknown option {quoted(options[at])} for 'xgroup|create'")
    return makes


def _move(session: Session, queue: str, group: str, target: bytes) -> None:
    """Inside a call: what comes after the target is read next."""
    engine = session.door.engine
    if target == b"$":
        engine.seek(queue, group, "end")
    else:
        place = upto_bound(session, queue, read_bound(target))
        engine.seek(queue, group, min(place, engine.last_position(queue)))


def _set_id(session: Session, queue: str, group: str, words: list[bytes]) -> Begun:
    if not words:
        raise wrong_arity("xgroup|setid")
    if words[0] != b"$":
        read_bound(words[0])

    def operation() -> None:
        _check_key(session, queue)
        check_group(session, queue, group, "XGROUP")
        _move(session, queue, group, words[0])

    return session.door.change(operation, lambda _: OK)


def _check_key(session: Session, queue: str) -> None:
    """Inside a call."""
    if all(info.name != queue for info in session.door.engine.queues()):
        raise CommandError(NO_KEY)


def check_group(session: Session, queue: str, group: str, name: str) -> None:
    """Inside a call."""
    if group not in session.door.engine.groups(queue):
        raise no_group(queue, group, name)


def no_group(queue: str, group: str, name: str) -> CommandError:
    extra = " in XREADGROUP with GROUP option" if name == "XREADGROUP" else ""
    return CommandError(
        f"NOGROUP No such key '{printable(queue.encode())}' or consumer group '{printable(group.encode())}'{extra}"
    )


def _destroy(session: Session, queue: str, group: str, words: list[bytes]) -> Begun:
    session.door.forget_group(queue, group)

    def operation() -> bool:
        _check_key(session, queue)
        return session.door.engine.forget(queue, group)

    return session.door.change(operation, int)


def _create_consumer(session: Session, queue: str, group: str, words: list[bytes]) -> Begun:
    """Consumers of a stream are known by what they hold; one that was made is only not new any more."""
    if len(words) != 1:
        raise wrong_arity("xgroup|createconsumer")
    consumer = read_name("consumer")(words[0])

    def operation() -> bool:
        _check_key(session, queue)
        check_group(session, queue, group, "XGROUP")
        return not session.door.engine.leases(queue, group, consumer=consumer, limit=1)

    return session.door.change(operation, lambda is_new: int(is_new and session.door.meet(queue, group, consumer)))


def _delete_consumer(session: Session, queue: str, group: str, words: list[bytes]) -> Begun:
    """What it held is free for others at once."""
    if len(words) != 1:
        raise wrong_arity("xgroup|delconsumer")
    consumer = read_name("consumer")(words[0])
    engine = session.door.engine

    def operation() -> int:
        _check_key(session, queue)
        check_group(session, queue, group, "XGROUP")
        held = engine.leases(queue, group, consumer=consumer, limit=1_000_000)
        releases = [Settle(Event.RELEASE, one.id, one.position, one.token, "its consumer was removed") for one in held]
        if releases:
            engine.settle(queue, group, releases)
        return len(held)

    return session.door.change(operation, lambda count: count)


def _help(session: Session, queue: str, group: str, words: list[bytes]) -> Reply:
    return ["XGROUP <subcommand>. Subcommands are:", *sorted(MANAGE)]


MANAGE = {
    "CREATE": _create,
    "SETID": _set_id,
    "DESTROY": _destroy,
    "CREATECONSUMER": _create_consumer,
    "DELCONSUMER": _delete_consumer,
    "HELP": _help,
}


# -- XREADGROUP ------------------------------------------------------------------------------------------------------


class _Reading(msgspec.Struct, frozen=True):
    group: str
    consumer: str
    count: int
    block: float | None  # seconds; 0 is for ever
    blocks: bool
    noack: bool
    streams: list[tuple[str, bytes]]


@command("XREADGROUP", Order.RECEIVE, Right.RECEIVE, FAMILY, usage=READ_USAGE)
def read(session: Session, words: Words) -> Begun:
    """Receive entries of streams as a consumer of a group; an id instead of > reads what the consumer holds."""
    reading = _read_words(words)
    queues = [queue for queue, _ in reading.streams]
    session.check(Right.RECEIVE, *queues)
    work = _checked(session, reading)
    if not reading.blocks or any(place != b">" for _, place in reading.streams):
        return work
    return Waiting(
        work,
        queues,
        reading.group,
        None if reading.block == 0 else reading.block,
        NO_ARRAY,
        partial(_take, session, reading),
        partial(_deal_and_ack if reading.noack else _deal, session),
    )


def _read_words(words: list[bytes]) -> _Reading:
    if len(words) < 3 or words[0].upper() != b"GROUP":
        raise CommandError("ERR Missing GROUP option for XREADGROUP")
    group, consumer = read_name("group")(words[1]), read_name("consumer")(words[2])
    count, block, noack, at = WITHOUT_COUNT, None, False, 3
    while at < len(words):
        word, value = words[at].upper(), words[at + 1] if at + 1 < len(words) else None
        if word == b"STREAMS":
            return _Reading(group, consumer, count, block, block is not None, noack, _streams(words[at + 1 :]))
        if word == b"NOACK":
            noack = True
            at += 1
            continue
        if word not in (b"COUNT", b"BLOCK") or value is None:
            raise CommandError(f"ERR syntax error: unknown option {quoted(words[at])} for 'xreadgroup'")
        if word == b"COUNT":
            count = min(read_count(value), 1_000_000) or WITHOUT_COUNT
        else:
            block = _milliseconds(value) / 1000
        at += 2
    raise CommandError("ERR syntax error: XREADGROUP needs STREAMS key [key ...] id [id ...]")


def _milliseconds(value: bytes) -> int:
    if not value.isdigit():
        negative = value[:1] == b"-" and value[1:].isdigit()
        raise CommandError("ERR timeout is negative" if negative else "ERR timeout is not an integer or out of range")
    return min(int(value), 10**12)


def _streams(words: list[bytes]) -> list[tuple[str, bytes]]:
    half, odd = divmod(len(words), 2)
    if odd or not half:
        raise CommandError(
            "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID, '>', or '$' must be specified."
        )
    for place in words[half:]:
        if place == b"$":
            raise CommandError("ERR The $ ID is meaningless in the context of XREADGROUP: use > to read new entries")
        if place != b">":
            read_bound(place)
    return [(read_name("queue")(key), place) for key, place in zip(words[:half], words[half:], strict=True)]


def _checked(session: Session, reading: _Reading) -> Work:
    """A group must have been made; that is looked up once."""
    door = session.door
    unknown = [queue for queue, _ in reading.streams if not door.knows_group(queue, reading.group)]
    if not unknown:
        return _read(session, reading)

    def operation() -> None:
        for queue in unknown:
            check_group(session, queue, reading.group, "XREADGROUP")

    def finish(_: None) -> Work:
        for queue in unknown:
            door.learn_group(queue, reading.group)
        return _read(session, reading)

    return door.change(operation, finish)


def _read(session: Session, reading: _Reading) -> Work:
    if len(reading.streams) == 1 and reading.streams[0][1] == b">" and not reading.noack:
        queue = reading.streams[0][0]
        return Work(_take(session, reading, queue), partial(_deal, session, queue))

    def operation() -> list[tuple[str, list[Entry], Receipt | None]]:
        return [(queue, *_read_one(session, reading, queue, place)) for queue, place in reading.streams]

    def finish(found: Sequence[tuple[str, list[Entry], Receipt | None]]) -> Reply:
        pairs = []
        for (queue, entries, receipt), (_, place) in zip(found, reading.streams, strict=True):
            if receipt is not None and not reading.noack:
                session.door.remember_entries(receipt)
            if entries or place != b">":
                pairs.append((queue, entries))
        return Pairs(pairs) if pairs else NO_ARRAY

    return session.door.change(operation, finish)


def _take(session: Session, reading: _Reading, queue: str) -> Call:
    lease = session.server.stream_lease_seconds
    return session.door.take(queue, reading.group, reading.consumer, reading.count, lease)


def _deal(session: Session, queue: str, receipt: Receipt | None) -> Reply:
    if receipt is None or not receipt.rows:
        return NO_ARRAY
    session.door.remember_entries(receipt)
    return Pairs([(queue, [row_entry(row) for row in receipt.rows])])


def _deal_and_ack(session: Session, queue: str, receipt: Receipt | None) -> Reply | Work:
    """For a client that waited: acked only now that it is there to take it."""
    reply = _deal(session, queue, receipt)
    if receipt is None or not receipt.rows:
        return reply
    acks = session.door.ack_entries(queue, receipt.group, [row[POSITION] for row in receipt.rows])
    return acks.then(lambda _: reply)


def _read_one(session: Session, reading: _Reading, queue: str, place: bytes) -> tuple[list[Entry], Receipt | None]:
    engine = session.door.engine
    if place != b">":
        return _held(session, reading, queue, place), None
    lease = session.server.stream_lease_seconds
    receipt = engine.receive(queue, reading.group, reading.consumer, reading.count, lease)
    if reading.noack and receipt.rows:
        engine.ack_all(queue, reading.group, receipt.token, [row[POSITION] for row in receipt.rows])
    return [row_entry(row) for row in receipt.rows], receipt


def _held(session: Session, reading: _Reading, queue: str, place: bytes) -> list[Entry]:
    """What the consumer has in flight, after an id."""
    engine = session.door.engine
    milliseconds, position = read_parts(place)
    after = after_bound(session, queue, Bound(milliseconds, position, is_open=True))
    leases = engine.leases(queue, reading.group, consumer=reading.consumer, after=after, limit=reading.count)
    return [message_entry(engine.find(queue, one.id)) for one in leases]
