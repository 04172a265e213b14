"""Dead letters, batches, schedules and policies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from penstock.domain.results import DeadLetter
from penstock.domain.validation import check_integer
from penstock.servers.permissions import Needs
from penstock.servers.reply_size import SMALL_LIMIT, first_piece
from penstock.servers.resp.arguments import Count, GroupName, MessageIds, QueueName, Text, Words, read_name, read_text
from penstock.servers.resp.commands.replies import to_reply
from penstock.servers.resp.encoder import OK, Reply
from penstock.servers.resp.errors import CommandError, quoted, unknown_subcommand, wrong_arity
from penstock.servers.resp.session import Begun, ClientSession
from penstock.servers.resp.table import Order, command

FAMILY = "model"
MAX_LIMIT = 10_000


# -- dead letters ----------------------------------------------------------------------------------------------------


@command("QDEAD", Order.ALONE, Needs.READ_DEAD_LETTERS, FAMILY, brings_messages=True)
def dead(
    session: ClientSession,
    queue: QueueName,
    *,
    group: GroupName | None = None,
    outcome: Text | None = None,
    limit: Count = 100,
) -> Begun:
    """Messages that ended without success, newest first, as many as fit into a reply."""
    check_integer("LIMIT", limit, 1, MAX_LIMIT)
    dead_letters = session.backend.local.queue(queue).dead_letters

    def letters() -> Iterator[DeadLetter]:
        last, left = None, limit
        while page := dead_letters(min(left, SMALL_LIMIT), group, outcome, last):
            yield from page
            last, left = page[-1], left - len(page)
            if not left:
                return

    return session.backend.read(lambda: first_piece(letters(), lambda one: len(one.payload)), to_reply)


@command("QREDRIVE", Order.TURN, Needs.REDRIVE, FAMILY)
def redrive(
    session: ClientSession,
    queue: QueueName,
    ids: MessageIds,
    *,
    group: GroupName | None = None,
    outcome: Text | None = None,
) -> Begun:
    """Send dead letters again: by id, by outcome, or all of the group. Returns how many."""
    backend = session.backend
    return backend.write(lambda: backend.local.queue(queue).redrive(ids or None, group=group, outcome=outcome))


@command("QPURGE", Order.TURN, Needs.PURGE, FAMILY)
def purge(
    session: ClientSession,
    queue: QueueName,
    ids: MessageIds,
    *,
    group: GroupName | None = None,
    outcome: Text | None = None,
) -> Begun:
    """Remove dead letters for good. Returns how many."""
    backend = session.backend
    return backend.write(lambda: backend.local.queue(queue).purge(ids or None, group=group, outcome=outcome))


# -- queues ----------------------------------------------------------------------------------------------------------


@command("QPAUSE", Order.TURN, Needs.PAUSE_QUEUE, FAMILY)
def pause(session: ClientSession, queue: QueueName) -> Begun:
    """Deliver nothing until QRESUME; sends and settlements go on."""
    return session.backend.write(lambda: session.backend.engine.declare(queue, {"paused": True}), lambda _: OK)


@command("QRESUME", Order.TURN, Needs.PAUSE_QUEUE, FAMILY)
def resume(session: ClientSession, queue: QueueName) -> Begun:
    """Deliver messages again."""
    return session.backend.write(lambda: session.backend.engine.declare(queue, {"paused": False}), lambda _: OK)


@command("QSEEK", Order.TURN, Needs.SEEK, FAMILY)
def seek(session: ClientSession, queue: QueueName, group: GroupName, target: Text) -> Begun:
    """Move the cursor of a group to a position, a time (ISO 8601), start or end. Returns the position."""
    place = _seek_target(target)
    return session.backend.write(lambda: session.backend.local.queue(queue).seek(group, place))


def _seek_target(text: str) -> int | datetime | str:
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text


@command(
    "QPOLICY",
    Order.TURN,
    Needs.READ_POLICY,
    FAMILY,
    usage="QPOLICY queue [field value ...]",
    also=(Needs.SET_POLICY,),
)
def policy(session: ClientSession, queue: QueueName, words: Words) -> Begun:
    """Return a queue's policy, or set fields of it; values are JSON."""
    if len(words) % 2:
        raise wrong_arity("qpolicy")
    changes = {read_text(name): _json(value) for name, value in zip(words[::2], words[1::2], strict=True)}
    session.check(Needs.SET_POLICY if changes else Needs.READ_POLICY, queue)
    backend = session.backend
    if not changes:
        return backend.write(lambda: backend.engine.policy(queue), to_reply)

    def operation() -> object:
        return backend.local.queue(queue, **changes).policy()

    return backend.write(operation, to_reply)


def _json(value: bytes) -> Any:
    """Decode a JSON value; a bare word is a string."""
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return read_text(value)


# -- batches ---------------------------------------------------------------------------------------------------------


@command(
    "QBATCH",
    Order.TURN,
    Needs.READ_BATCHES,
    FAMILY,
    usage="QBATCH OPEN|INFO|START|CANCEL|END|ABORT|LIST queue [name] [payload [TYPE type]]",
    also=(Needs.RUN_BATCHES,),
)
def batch(session: ClientSession, subcommand: Text, words: Words) -> Begun:
    """Batches: OPEN, INFO, START and CANCEL one, set its END or ABORT message, LIST them; QSEND fills them."""
    word = subcommand.upper()
    if not words:
        raise wrong_arity("qbatch")
    queue = read_name("queue")(words[0])
    session.check(Needs.READ_BATCHES if word in ("LIST", "INFO") else Needs.RUN_BATCHES, queue)
    local = session.backend.local.queue(queue)
    if word == "LIST" and len(words) == 1:
        return session.backend.write(local.batches, to_reply)
    if word not in BATCHES:
        raise unknown_subcommand("QBATCH", subcommand.encode())
    run, count = BATCHES[word]
    has_type = count == 3 and len(words) == 5 and words[3].upper() == b"TYPE"
    if len(words) != count and not has_type:
        raise wrong_arity(f"qbatch|{word.lower()}")
    name = read_name("batch")(words[1])
    return session.backend.write(lambda: run(session, queue, name, words), to_reply)


def _open(session: ClientSession, queue: str, name: str, words: list[bytes]) -> object:
    return session.backend.engine.batch_open(queue, name, None, None)


def _inspect(session: ClientSession, queue: str, name: str, words: list[bytes]) -> object:
    return session.backend.engine.batch(queue, name)


def _start(session: ClientSession, queue: str, name: str, words: list[bytes]) -> object:
    return session.backend.engine.batch_start(queue, name)


def _cancel(session: ClientSession, queue: str, name: str, words: list[bytes]) -> object:
    return session.backend.engine.batch_cancel(queue, name)


def _end(session: ClientSession, queue: str, name: str, words: list[bytes]) -> object:
    session.backend.local.queue(queue).batch(name).set_end(words[2], content_type=_type(words))
    return session.backend.engine.batch(queue, name)


def _abort(session: ClientSession, queue: str, name: str, words: list[bytes]) -> object:
    session.backend.local.queue(queue).batch(name).set_abort(words[2], content_type=_type(words))
    return session.backend.engine.batch(queue, name)


def _type(words: list[bytes]) -> str | None:
    return read_text(words[4]) if len(words) > 3 else None


Run = Callable[[ClientSession, str, str, list[bytes]], object]
BATCHES: dict[str, tuple[Run, int]] = {
    "OPEN": (_open, 2),
    "INFO": (_inspect, 2),
    "START": (_start, 2),
    "CANCEL": (_cancel, 2),
    "END": (_end, 3),
    "ABORT": (_abort, 3),
}


# -- schedules -------------------------------------------------------------------------------------------------------


@command(
    "QSCHEDULE",
    Order.TURN,
    Needs.READ_SCHEDULES,
    FAMILY,
    usage="QSCHEDULE ADD name cron queue payload [TIMEZONE zone] [CATCHUP skip|one|all] | LIST | PAUSE name | "
    "RESUME name | REMOVE name",
    also=(Needs.PAUSE_SCHEDULE, Needs.SET_SCHEDULE),
)
def schedule(session: ClientSession, subcommand: Text, words: Words) -> Begun:
    """Schedules: ADD, LIST, PAUSE, RESUME and REMOVE cron rules that send messages."""
    local = session.backend.local
    word = subcommand.upper()
    if word == "LIST" and not words:
        session.check(Needs.READ_SCHEDULES)
        return session.backend.write(
            local.schedules,
            lambda found: [to_reply(one) for one in found if session.may(Needs.READ_SCHEDULES, one.queue)],
        )
    if word == "ADD":
        return _add_schedule(session, words)
    if word not in ("PAUSE", "RESUME", "REMOVE"):
        raise unknown_subcommand("QSCHEDULE", subcommand.encode())
    if len(words) != 1:
        raise wrong_arity(f"qschedule|{word.lower()}")
    name = read_name("schedule")(words[0])
    right = Needs.SET_SCHEDULE if word == "REMOVE" else Needs.PAUSE_SCHEDULE
    session.check(right)

    def operation() -> Reply:
        for one in local.schedules():
            if one.name == name:
                session.check(right, one.queue)
        if word == "REMOVE":
            local.unschedule(name)
            return OK
        return to_reply(local.pause_schedule(name) if word == "PAUSE" else local.resume_schedule(name))

    return session.backend.write(operation)


def _add_schedule(session: ClientSession, words: list[bytes]) -> Begun:
    if len(words) < 4 or len(words) % 2:
        raise wrong_arity("qschedule|add")
    name, cron, queue = read_name("schedule")(words[0]), read_text(words[1]), read_name("queue")(words[2])
    session.check(Needs.SET_SCHEDULE, queue)
    options: dict[str, Any] = {}
    for option, value in zip(words[4::2], words[5::2], strict=True):
        if option.upper() not in SCHEDULE_OPTIONS:
            raise CommandError(f"ERR syntax error: unknown option {quoted(option)} for 'qschedule|add'")
        options[SCHEDULE_OPTIONS[option.upper()]] = read_text(value)
    local = session.backend.local

    def operation() -> object:
        for one in local.schedules():
            if one.name == name:
                session.check(Needs.SET_SCHEDULE, one.queue)
        return local.schedule(name, cron, queue, words[3], **options)

    return session.backend.write(operation, to_reply)


SCHEDULE_OPTIONS = {b"TIMEZONE": "timezone", b"CATCHUP": "catch_up"}
