"""MULTI, EXEC and DISCARD: run several commands in one transaction."""

from __future__ import annotations

from penstock.servers.access import Right
from penstock.servers.resp.arguments import Words
from penstock.servers.resp.encoder import OK, Reply
from penstock.servers.resp.errors import CommandError
from penstock.servers.resp.session import Begun, ClientSession
from penstock.servers.resp.table import Order, command

FAMILY = "transactions"


@command("MULTI", Order.HERE, Right.NOTHING, FAMILY, in_multi=False)
def begin(session: ClientSession) -> Reply:
    """Begin a transaction: commands are queued until EXEC."""
    if session.queued is not None:
        raise CommandError("ERR MULTI calls can not be nested")
    session.queued = []
    session.queued_bytes = 0
    session.is_aborted = False
    return OK


@command("EXEC", Order.TURN, Right.NOTHING, FAMILY, in_multi=False)
def execute(session: ClientSession) -> Begun:
    """Run all queued commands in one transaction."""
    return session.execute()


@command("DISCARD", Order.HERE, Right.NOTHING, FAMILY, in_multi=False)
def discard(session: ClientSession) -> Reply:
    """Discard the queued commands."""
    if session.queued is None:
        raise CommandError("ERR DISCARD without MULTI")
    session.queued = None
    session.is_aborted = False
    return OK


@command("WATCH", Order.HERE, Right.NOTHING, FAMILY, in_multi=False, usage="WATCH key [key ...]")
def watch(session: ClientSession, words: Words) -> Reply:
    """Refused: queues have no values to watch."""
    raise CommandError("ERR WATCH is not supported: queues have no values to compare")


@command("UNWATCH", Order.HERE, Right.NOTHING, FAMILY)
def unwatch(session: ClientSession) -> Reply:
    """Accepted without effect."""
    return OK
