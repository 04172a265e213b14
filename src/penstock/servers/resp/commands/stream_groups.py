"""XGROUP: create, move and remove groups of a stream."""

from __future__ import annotations

from penstock.domain.lifecycle import Event
from penstock.domain.settlement import Settle
from penstock.servers.access import Right
from penstock.servers.resp.arguments import Text, Words, read_integer, read_name
from penstock.servers.resp.commands.bounds import upto_bound
from penstock.servers.resp.commands.entries import read_bound
from penstock.servers.resp.commands.entries_read import set_entries_read
from penstock.servers.resp.commands.keyspace import exists
from penstock.servers.resp.encoder import OK, Reply
from penstock.servers.resp.errors import CommandError, printable, quoted, unknown_subcommand
from penstock.servers.resp.session import Begun, ClientSession
from penstock.servers.resp.table import Order, command

FAMILY = "stream"
NO_KEY = (
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM "
    "option to create an empty stream automatically."
)


@command(
    "XGROUP",
    Order.TURN,
    Right.MANAGE,
    FAMILY,
    usage="XGROUP CREATE|SETID|DESTROY|CREATECONSUMER|DELCONSUMER key group [...]",
    subcommands={
        "CREATE": (3, None),
        "SETID": (3, None),
        "DESTROY": (2, 2),
        "CREATECONSUMER": (3, 3),
        "DELCONSUMER": (3, 3),
        "HELP": (0, 0),
    },
)
def manage(session: ClientSession, subcommand: Text, words: Words) -> Begun:
    """Create, move and remove groups of a stream."""
    run = MANAGE.get(subcommand.upper())
    if run is None:
        raise unknown_subcommand("XGROUP", subcommand.encode())
    if run is _help:
        return run(session, "", "", [])
    queue, group = read_name("queue")(words[0]), read_name("group")(words[1])
    session.check(Right.MANAGE, queue)
    return run(session, queue, group, words[2:])


def _create(session: ClientSession, queue: str, group: str, words: list[bytes]) -> Begun:
    target, options = words[0], [word.upper() for word in words[1:]]
    makes, entries_read = _group_options(options, "create")
    engine = session.backend.engine

    def operation() -> None:
        if not makes:
            _check_key(session, queue)
        session.backend.make(queue)
        if group in engine.groups(queue):
            raise CommandError("BUSYGROUP Consumer Group name already exists")
        _move(session, queue, group, target)
        set_entries_read(session, queue, group, entries_read)

    if target != b"$":
        read_bound(target)
    return session.backend.write(operation, lambda _: OK)


def _group_options(options: list[bytes], subcommand: str) -> tuple[bool, int | None]:
    """MKSTREAM and ENTRIESREAD."""
    at, makes, entries_read = 0, False, None
    while at < len(options):
        if options[at] == b"MKSTREAM" and subcommand == "create":
            makes = True
            at += 1
        elif options[at] == b"ENTRIESREAD" and at + 1 < len(options):
            entries_read = read_integer(options[at + 1])
            if entries_read < -1:
                raise CommandError("ERR value for ENTRIESREAD must be positive or -1")
            at += 2
        else:
            raise CommandError(f"ERR syntax error: unknown option {quoted(options[at])} for 'xgroup|{subcommand}'")
    return makes, None if entries_read == -1 else entries_read


def _move(session: ClientSession, queue: str, group: str, target: bytes) -> None:
    """Inside an operation: the group continues after the target."""
    engine = session.backend.engine
    if target in (b"$", b"+"):
        engine.seek(queue, group, "end")
    elif target == b"-":
        engine.seek(queue, group, "start")
    else:
        place = upto_bound(session, queue, read_bound(target))
        engine.seek(queue, group, min(place, engine.last_position(queue)))


def _set_id(session: ClientSession, queue: str, group: str, words: list[bytes]) -> Begun:
    if words[0] not in (b"$", b"-", b"+"):
        read_bound(words[0])
    _, entries_read = _group_options([word.upper() for word in words[1:]], "setid")

    def operation() -> None:
        _check_key(session, queue)
        check_group(session, queue, group, "XGROUP")
        _move(session, queue, group, words[0])
        set_entries_read(session, queue, group, entries_read)

    return session.backend.write(operation, lambda _: OK)


def _check_key(session: ClientSession, queue: str) -> None:
    """Inside an operation."""
    if not exists(session, queue):
        raise CommandError(NO_KEY)


def check_group(session: ClientSession, queue: str, group: str, name: str) -> None:
    """Inside an operation."""
    if group not in session.backend.engine.groups(queue):
        raise no_group(queue, group, name)


def no_group(queue: str, group: str, name: str) -> CommandError:
    extra = " in XREADGROUP with GROUP option" if name == "XREADGROUP" else ""
    return CommandError(
        f"NOGROUP No such key '{printable(queue.encode())}' or consumer group '{printable(group.encode())}'{extra}"
    )


def _destroy(session: ClientSession, queue: str, group: str, words: list[bytes]) -> Begun:
    session.backend.consumers.forget(queue, group)

    def operation() -> bool:
        _check_key(session, queue)
        set_entries_read(session, queue, group, None)
        return session.backend.engine.forget(queue, group)

    return session.backend.write(operation, int)


def _create_consumer(session: ClientSession, queue: str, group: str, words: list[bytes]) -> Begun:
    consumer = read_name("consumer")(words[0])

    def operation() -> bool:
        _check_key(session, queue)
        check_group(session, queue, group, "XGROUP")
        return not session.backend.engine.leases(queue, group, consumer=consumer, limit=1)

    return session.backend.write(
        operation, lambda is_new: int(session.backend.consumers.note_seen(queue, group, consumer) and is_new)
    )


def _delete_consumer(session: ClientSession, queue: str, group: str, words: list[bytes]) -> Begun:
    """Its entries are released at once."""
    consumer = read_name("consumer")(words[0])
    engine = session.backend.engine

    def operation() -> int:
        _check_key(session, queue)
        check_group(session, queue, group, "XGROUP")
        held = engine.leases(queue, group, consumer=consumer, limit=1_000_000)
        releases = [Settle(Event.RELEASE, one.id, one.position, one.token, "its consumer was removed") for one in held]
        if releases:
            engine.settle(queue, group, releases)
        return len(held)

    def finish(count: int) -> Reply:
        session.backend.consumers.leave(queue, group, consumer)
        return count

    return session.backend.write(operation, finish)


def _help(session: ClientSession, queue: str, group: str, words: list[bytes]) -> Reply:
    return ["XGROUP <subcommand>. Subcommands are:", *sorted(MANAGE)]


MANAGE = {
    "CREATE": _create,
    "SETID": _set_id,
    "DESTROY": _destroy,
    "CREATECONSUMER": _create_consumer,
    "DELCONSUMER": _delete_consumer,
    "HELP": _help,
}
