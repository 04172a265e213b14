"""QPEEK, QFIND, QAUDIT, QEXPLAIN, QQUEUES and QCONSUMERS: looking, without changing anything."""

from __future__ import annotations

from penstock.domain.times import check_integer
from penstock.servers.access import Right
from penstock.servers.resp.arguments import Count, GroupName, MessageId, QueueName
from penstock.servers.resp.commands.telling import told
from penstock.servers.resp.session import Begun, Session
from penstock.servers.resp.table import Order, command

FAMILY = "model"
MAX_LIMIT = 10_000


@command("QPEEK", Order.ALONE, Right.LOOK, FAMILY)
def peek(session: Session, queue: QueueName, *, group: GroupName | None = None, limit: Count = 10) -> Begun:
    """What a group would receive next, without receiving it."""
    check_integer("LIMIT", limit, 1, MAX_LIMIT)
    return session.door.look(lambda: session.door.local.queue(queue).peek(limit, group), told)


@command("QFIND", Order.ALONE, Right.LOOK, FAMILY)
def find(session: Session, queue: QueueName, id: MessageId) -> Begun:
    """One message by its id, wherever it is."""
    return session.door.look(lambda: session.door.engine.find(queue, id), told)


@command("QAUDIT", Order.ALONE, Right.LOOK, FAMILY)
def audit(session: Session, queue: QueueName, id: MessageId) -> Begun:
    """What happened to a message, in order, over all groups."""
    return session.door.look(lambda: session.door.engine.audit(queue, id), told)


@command("QEXPLAIN", Order.ALONE, Right.LOOK, FAMILY)
def explain(session: Session, queue: QueueName, id: MessageId, *, group: GroupName | None = None) -> Begun:
    """Where a message is, why it is not running, and what to do about it."""
    return session.door.look(lambda: session.door.local.queue(queue).explain(id, group), told)


@command("QQUEUES", Order.ALONE, Right.LOOK, FAMILY)
def queues(session: Session) -> Begun:
    """All queues with their policies and groups."""
    engine = session.door.engine
    return session.door.look(
        engine.queues, lambda found: told([one for one in found if session.may(Right.LOOK, one.name)])
    )


@command("QCONSUMERS", Order.ALONE, Right.LOOK, FAMILY)
def consumers(session: Session, queue: QueueName) -> Begun:
    """The registered consumers of a queue, in birth order."""
    return session.door.look(lambda: session.door.engine.consumers(queue), told)
