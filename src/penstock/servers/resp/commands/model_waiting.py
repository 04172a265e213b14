"""QWAIT: until the message of an address has ended."""

from __future__ import annotations

from penstock.servers.access import Right
from penstock.servers.resp.arguments import QueueName, Seconds, Text
from penstock.servers.resp.encoder import Reply
from penstock.servers.resp.session import Session
from penstock.servers.resp.table import Order, command

FAMILY = "model"


@command("QWAIT", Order.ALONE, Right.LOOK, FAMILY)
async def wait(session: Session, queue: QueueName, address: Text, *, timeout: Seconds | None = None) -> Reply:
    """Wait until the newest message of an address has ended: succeeded, or an error with its outcome and reason."""
    waiting = await session.server.store.queue(queue)
    with session.waiting():
        return str(await waiting.wait(address, timeout))
