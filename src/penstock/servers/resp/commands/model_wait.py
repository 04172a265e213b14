"""QWAIT: wait for the outcome of an address."""

from __future__ import annotations

from penstock.domain.errors import WaitTimeout
from penstock.servers.permissions import Needs
from penstock.servers.resp.arguments import QueueName, Seconds, Text
from penstock.servers.resp.encoder import Reply
from penstock.servers.resp.session import ClientSession
from penstock.servers.resp.table import Order, command

FAMILY = "model"


@command("QWAIT", Order.ALONE, Needs.READ_MESSAGES, FAMILY)
async def wait(session: ClientSession, queue: QueueName, address: Text, *, timeout: Seconds | None = None) -> Reply:
    """Block until the newest message of an address has ended: succeeded, or an error with its outcome and reason."""
    waiting = await session.server.store.queue(queue)
    ended = f"address {address!r}: the wait was ended by CLIENT UNBLOCK, or because the server stops"
    with session.waiting(WaitTimeout(ended)):
        return str(await waiting.wait(address, timeout))
