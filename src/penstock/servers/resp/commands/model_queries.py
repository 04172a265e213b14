"""QPEEK, QFIND, QAUDIT, QEXPLAIN, QQUEUES and QCONSUMERS: queries."""

from __future__ import annotations

from penstock.domain.message import Message
from penstock.domain.validation import check_integer
from penstock.servers.permissions import Needs
from penstock.servers.reply_size import MAX_BYTES, SMALL_LIMIT
from penstock.servers.resp.arguments import Count, GroupName, MessageId, QueueName
from penstock.servers.resp.commands.replies import to_reply
from penstock.servers.resp.session import Begun, ClientSession
from penstock.servers.resp.table import Order, command

FAMILY = "model"
MAX_LIMIT = 10_000


@command("QPEEK", Order.ALONE, Needs.READ_MESSAGES, FAMILY, brings_messages=True)
def peek(session: ClientSession, queue: QueueName, *, group: GroupName | None = None, limit: Count = 10) -> Begun:
    """Return the messages that a group would receive next, without receiving them, as many as fit into a reply."""
    check_integer("LIMIT", limit, 1, MAX_LIMIT)

    def operation() -> list[Message]:
        count = limit if limit <= SMALL_LIMIT else session.backend.engine.fitting(queue, group, limit, MAX_BYTES)
        return session.backend.local.queue(queue).peek(count, group)

    return session.backend.read(operation, to_reply)


@command("QFIND", Order.ALONE, Needs.READ_MESSAGES, FAMILY, brings_messages=True)
def find(session: ClientSession, queue: QueueName, id: MessageId) -> Begun:
    """Return a message by its id, in any state."""
    return session.backend.read(lambda: session.backend.engine.find(queue, id), to_reply)


@command("QAUDIT", Order.ALONE, Needs.READ_MESSAGES, FAMILY)
def audit(session: ClientSession, queue: QueueName, id: MessageId) -> Begun:
    """Return the audit trail of a message, in order, over all groups."""
    return session.backend.read(lambda: session.backend.engine.audit(queue, id), to_reply)


@command("QEXPLAIN", Order.ALONE, Needs.READ_MESSAGES, FAMILY)
def explain(session: ClientSession, queue: QueueName, id: MessageId, *, group: GroupName | None = None) -> Begun:
    """Explain where a message is, why it is not running, and what to do about it."""
    return session.backend.read(lambda: session.backend.local.queue(queue).explain(id, group), to_reply)


@command("QQUEUES", Order.ALONE, Needs.READ_QUEUES, FAMILY)
def queues(session: ClientSession) -> Begun:
    """Return all queues with their policies and groups."""
    engine = session.backend.engine
    return session.backend.read(
        engine.queues, lambda found: to_reply([one for one in found if session.may(Needs.READ_QUEUES, one.name)])
    )


@command("QCONSUMERS", Order.ALONE, Needs.READ_CONSUMERS, FAMILY)
def consumers(session: ClientSession, queue: QueueName) -> Begun:
    """Return the registered consumers of a queue, in birth order."""
    return session.backend.read(lambda: session.backend.engine.consumers(queue), to_reply)
