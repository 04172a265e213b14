"""QLPUSH, QRPUSH, QLPEEK, QRPEEK, QRPOP and QREGISTER: the older commands, with one group and ids chosen by the client.
Events are added at the left end and taken from the right end."""

from __future__ import annotations

import msgspec

from penstock.domain.errors import NotFound
from penstock.domain.lifecycle import State
from penstock.domain.message import Message, Outgoing, draft
from penstock.servers.permissions import Needs
from penstock.servers.resp.arguments import Blob, Flag, QueueName, QueueNames, Seconds
from penstock.servers.resp.commands.bananaq import LEASE_SECONDS, OLDER_GROUP, in_background, receive_events
from penstock.servers.resp.commands.events import HEADER, ChosenId, chosen_id
from penstock.servers.resp.encoder import NO_ARRAY, OK, Reply
from penstock.servers.resp.errors import CommandError, quoted
from penstock.servers.resp.session import Begun, ClientSession
from penstock.servers.resp.table import Order, command

FAMILY = "queue"
# Priority of events pushed on the left. One pushed on the right gets the next better priority than the best waiting
# event, so that there are never more priorities than waiting events.
LEFT = 1024
# How many of the newest events QLPEEK searches for one that was not taken.
SEARCHED = 1000


@command("QLPUSH", Order.TURN, Needs.SEND, FAMILY)
def push_left(
    session: ClientSession, queue: QueueName, event_id: ChosenId, contents: Blob, *, noblock: Flag = False
) -> Begun:
    """Add an event with a chosen id, to be taken after all others."""
    return _push(session, queue, event_id, contents, LEFT, noblock)


@command("QRPUSH", Order.TURN, Needs.SEND, FAMILY)
def push_right(
    session: ClientSession, queue: QueueName, event_id: ChosenId, contents: Blob, *, noblock: Flag = False
) -> Begun:
    """Add an event with a chosen id, to be taken before all others."""
    return _push(session, queue, event_id, contents, None, noblock)


def _push(
    session: ClientSession, queue: str, event_id: str, contents: bytes, priority: int | None, noblock: bool
) -> Begun:
    message_id = chosen_id(event_id)
    headers = None if message_id == event_id else {HEADER: event_id}
    outgoing = Outgoing(payload=contents, priority=priority or 0, headers=headers, id=message_id)
    draft(outgoing)  # reports invalid options immediately

    def operation() -> None:
        if not noblock:
            _check_new(session, queue, event_id, message_id)
        session.backend.make(queue)
        best = _best_priority(session, queue) if priority is None else priority
        session.backend.engine.send(queue, [draft(msgspec.structs.replace(outgoing, priority=best))])

    if noblock:
        return in_background(session, queue, session.backend.write(operation, lambda _: OK))
    return session.backend.write(operation, lambda _: OK)


def _best_priority(session: ClientSession, queue: str) -> int:
    """Return a priority better than that of every waiting event, or 0, the best."""
    waiting = session.backend.engine.peek(queue, OLDER_GROUP, 1)
    return max(0, min([LEFT, *(one.priority for one in waiting)]) - 1)


def _check_new(session: ClientSession, queue: str, event_id: str, message_id: str) -> None:
    try:
        session.backend.engine.find(queue, message_id)
    except NotFound:
        return
    raise _Taken(f"ERR event {quoted(event_id.encode())} is in the queue already")


class _Taken(CommandError):
    """The chosen id is in use."""


@command("QRPOP", Order.RECEIVE, Needs.RECEIVE, FAMILY, brings_messages=True)
def pop(session: ClientSession, queue: QueueName, *, ex: Seconds = LEASE_SECONDS) -> Begun:
    """Receive the event at the right end; EX 0 acknowledges it at once."""
    return receive_events(session, queue, OLDER_GROUP, ex)


@command("QRPEEK", Order.ALONE, Needs.READ_MESSAGES, FAMILY, brings_messages=True)
def peek_right(session: ClientSession, queue: QueueName) -> Begun:
    """Return the event that would be taken next, without taking it."""
    engine = session.backend.engine
    return session.backend.read(lambda: engine.peek(queue, OLDER_GROUP, 1), lambda found: _event_reply(found[:1]))


@command("QLPEEK", Order.ALONE, Needs.READ_MESSAGES, FAMILY, brings_messages=True)
def peek_left(session: ClientSession, queue: QueueName) -> Begun:
    """Return the event that would be taken last, without taking it."""
    engine = session.backend.engine

    def operation() -> list[Message]:
        """Lowest rank first: events pushed on the right are taken before those pushed on the left."""
        latest = engine.browse(queue, 0, None, SEARCHED, backwards=True)
        states = engine.states(queue, OLDER_GROUP, [one.id for one in latest]) if latest else []
        waiting = [one for one, at in zip(latest, states, strict=True) if at is not None and at.state is State.READY]
        return sorted(waiting, key=lambda one: -one.priority)[:1]

    return session.backend.read(operation, _event_reply)


def _event_reply(found: list[Message]) -> Reply:
    if not found:
        return NO_ARRAY
    return [found[0].headers.get(HEADER, found[0].id), found[0].payload]


@command("QREGISTER", Order.HERE, Needs.RECEIVE, FAMILY)
def register(session: ClientSession, queues: QueueNames) -> Reply:
    """Register the queues of this client, for a QNOTIFY that names none."""
    session.registered = list(dict.fromkeys(queues))
    return OK
