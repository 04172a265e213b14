"""COMMAND and INFO: the commands and the state of the server, within the rights of the user."""

from __future__ import annotations

import os
import time
from typing import Any

import penstock
from penstock.servers.access import Right
from penstock.servers.resp.arguments import Words
from penstock.servers.resp.commands.connection import REDIS_VERSION
from penstock.servers.resp.encoder import Reply, Tags, Verbatim
from penstock.servers.resp.errors import CommandError, quoted, unknown_subcommand
from penstock.servers.resp.session import ClientSession
from penstock.servers.resp.table import SINCE, TABLE, Command, Order, command

FAMILY = "server"
# Rights that change nothing.
READING = {Right.NOTHING, Right.LOOK}


@command("COMMAND", Order.HERE, Right.NOTHING, FAMILY, usage="COMMAND [COUNT|LIST|INFO [name ...]|DOCS [name ...]]")
def list_commands(session: ClientSession, words: Words) -> Reply:
    """List commands, with their documentation."""
    if not words:
        return [_row(one) for one in _allowed(session)]
    match words[0].upper():
        case b"COUNT" | b"LIST" if len(words) > 1:
            raise CommandError(f"ERR syntax error: {quoted(words[1])} is not expected here")
        case b"COUNT":
            return len(_allowed(session))
        case b"LIST":
            return [one.name.lower() for one in _allowed(session)]
        case b"INFO":
            return [_row(one) if one else None for one in _chosen(session, words[1:])]
        case b"DOCS":
            return {one.name.lower(): _document(one) for one in _chosen(session, words[1:]) if one}
        case b"HELP":
            return ["COMMAND <subcommand>. Subcommands are:", "COUNT", "DOCS", "INFO", "LIST"]
        case _:
            raise unknown_subcommand("COMMAND", words[0])


def _allowed(session: ClientSession) -> list[Command]:
    return [one for one in TABLE.values() if any(map(session.may, one.rights))]


def _chosen(session: ClientSession, names: list[bytes]) -> list[Command | None]:
    if not names:
        return list(_allowed(session))
    found = [TABLE.get(name.upper()) for name in names]
    return [one if one is not None and any(map(session.may, one.rights)) else None for one in found]


def _row(one: Command) -> list[Any]:
    flags = Tags("readonly" if set(one.rights) <= READING else "write")
    first = 0 if one.queue_at is None else one.queue_at + 1
    key = [1, -1, 1] if one.takes_queues and not first else [first, first, 1] if first else [0, 0, 0]
    return [
        one.name.lower(),
        one.signature.arity,
        flags,
        *key,
        Tags(*[f"@{right.value}" for right in one.rights], f"@{one.family}"),
        [],
        [],
        [],
    ]


def _document(one: Command) -> dict[str, Any]:
    document: dict[str, Any] = {"summary": one.summary, "since": SINCE, "group": one.family}
    if one.has_usage:
        grammar = one.usage.partition(" ")[2]
        arguments = [{"name": grammar, "type": "string", "display_text": grammar}] if grammar else []
    else:
        arguments = [parameter.documented() for parameter in one.signature.parameters]
    if arguments:
        document["arguments"] = arguments
    return document


@command("INFO", Order.HERE, Right.NOTHING, FAMILY, usage="INFO [section ...]")
def info(session: ClientSession, words: Words) -> Reply:
    """Return the state of the server."""
    server = session.server
    waiting = server.blocked_clients
    sections: dict[str, dict[str, Any]] = {
        "server": {
            "redis_version": REDIS_VERSION,
            "redis_mode": "standalone",
            "penstock_version": penstock.__version__,
            "process_id": os.getpid(),
            "uptime_in_seconds": int(time.time() - server.started_at),
            "engine": server.backend.engine.name,
        },
        "clients": {"connected_clients": len(server.connections), "blocked_clients": waiting},
        "persistence": {"loading": 0},
        "stats": {"total_connections_received": server.total_connections, "background_sends": server.background},
        "replication": {"role": "master", "connected_slaves": 0},
        "cluster": {"cluster_enabled": 0},
    }
    wanted = {word.decode(errors="replace").lower() for word in words} or {"default"}
    everything = bool(wanted & {"default", "all", "everything"})
    lines = []
    for name, facts in sections.items():
        if everything or name in wanted:
            lines += [f"# {name.capitalize()}", *(f"{key}:{value}" for key, value in facts.items()), ""]
    return Verbatim("\r\n".join(lines))


@command("CONFIG", Order.HERE, Right.NOTHING, FAMILY, usage="CONFIG GET name [name ...]")
def config(session: ClientSession, words: Words) -> Reply:
    """Settings cannot be read or changed here; GET returns none."""
    if words and words[0].upper() == b"GET":
        return {}
    raise unknown_subcommand("CONFIG", words[0] if words else b"")


@command("CLUSTER", Order.HERE, Right.NOTHING, FAMILY, usage="CLUSTER")
def cluster(session: ClientSession, words: Words) -> Reply:
    """There is no cluster."""
    raise CommandError("ERR This instance has cluster support disabled")
