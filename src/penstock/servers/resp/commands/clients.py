"""CLIENT: properties of a connection, and administration of others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.servers.access import Right
from penstock.servers.resp.arguments import Text, Words, read_count, read_text
from penstock.servers.resp.commands.connection import client_name
from penstock.servers.resp.encoder import OK, Reply
from penstock.servers.resp.errors import CommandError, quoted, unknown_subcommand, wrong_arity
from penstock.servers.resp.session import ClientSession
from penstock.servers.resp.table import Order, command

if TYPE_CHECKING:
    from penstock.servers.resp.connection import Connection

FAMILY = "connection"
UNBLOCKED = CommandError("UNBLOCKED client unblocked via CLIENT UNBLOCK")
# All clients of this server are NORMAL.
TYPES = (b"NORMAL", b"MASTER", b"SLAVE", b"REPLICA", b"PUBSUB")
Has = Callable[["Connection"], bool]


@command(
    "CLIENT",
    Order.HERE,
    Right.NOTHING,
    FAMILY,
    usage="CLIENT ID|INFO|LIST|GETNAME|SETNAME name|SETINFO attr value|KILL filter value|UNBLOCK id [TIMEOUT|ERROR]",
)
def client(session: ClientSession, subcommand: Text, words: Words) -> Reply:
    """About connections: ID, INFO, LIST, GETNAME, SETNAME, SETINFO, NO-EVICT, NO-TOUCH, KILL, UNBLOCK."""
    run = CLIENT.get(subcommand.upper())
    if run is None:
        raise unknown_subcommand("CLIENT", subcommand.encode())
    return run(session, words)


# -- this connection ---------------------------------------------------------------------------------------------------


def _set_name(session: ClientSession, words: list[bytes]) -> Reply:
    if len(words) != 1:
        raise wrong_arity("client|setname")
    session.rename(client_name(words[0]))
    return OK


def _set_info(session: ClientSession, words: list[bytes]) -> Reply:
    if len(words) != 2:
        raise wrong_arity("client|setinfo")
    value = client_name(words[1][:255])
    match words[0].upper():
        case b"LIB-NAME":
            session.library = value
        case b"LIB-VER":
            session.library_version = value
        case _:
            raise CommandError(f"ERR Unrecognized option {quoted(words[0])}")
    return OK


def _info(session: ClientSession, words: list[bytes]) -> Reply:
    return "".join(f"{_described(one)}\n" for one in session.server.connections if one.session is session)


def _described(connection: Connection) -> str:
    session = connection.session
    flags = ("x" if session.queued is not None else "") + ("b" if connection.is_blocked else "")
    facts = {
        "id": session.id,
        "addr": session.peer,
        "laddr": session.local,
        "name": session.name,
        "age": int(time.time() - session.connected_at),
        "idle": int(connection.loop.time() - connection.received_at),
        "flags": flags or "N",
        "db": 0,
        "multi": -1 if session.queued is None else len(session.queued),
        "resp": session.protocol,
        "user": session.user_name or "(unknown)",
        "lib-name": session.library,
        "lib-ver": session.library_version,
    }
    return " ".join(f"{name}={value}" for name, value in facts.items())


# -- all of them -------------------------------------------------------------------------------------------------------


def _list(session: ClientSession, words: list[bytes]) -> Reply:
    """Other clients are listed only to users with the right to manage."""
    everybody = session.may(Right.MANAGE)
    wanted = _listed(words)
    return "".join(
        f"{_described(one)}\n" for one in _in_order(session) if (everybody or one.session is session) and wanted(one)
    )


def _listed(words: list[bytes]) -> Has:
    match [word.upper() for word in words[:1]]:
        case []:
            return lambda one: True
        case [b"TYPE"] if len(words) == 2:
            return _is_of_type(words[1])
        case [b"ID"] if len(words) > 1:
            ids = {_id(word) for word in words[1:]}
            return lambda one: one.session.id in ids
    raise CommandError("ERR syntax error: CLIENT LIST takes TYPE type, or ID id [id ...]")


def _in_order(session: ClientSession) -> list[Connection]:
    return sorted(session.server.connections, key=lambda one: one.session.id)


def _kill(session: ClientSession, words: list[bytes]) -> Reply:
    session.check_everywhere(Right.MANAGE)
    if len(words) == 1:
        if not _end(session, [_filter(b"ADDR", words[0])], skips_self=False):
            raise CommandError("ERR No such client")
        return OK
    if not words or len(words) % 2:
        raise CommandError("ERR syntax error: CLIENT KILL takes filters, each with a value")
    filters, skips_self = [], True
    for name, value in zip(words[::2], words[1::2], strict=True):
        if name.upper() == b"SKIPME" and value.upper() in (b"YES", b"NO"):
            skips_self = value.upper() == b"YES"
        else:
            filters.append(_filter(name, value))
    return _end(session, filters, skips_self)


def _end(session: ClientSession, filters: list[Has], skips_self: bool) -> int:
    count = 0
    for one in _in_order(session):
        if (skips_self and one.session is session) or not all(has(one) for has in filters):
            continue
        count += 1
        if one.session is session:
            session.wants_close = True  # after the reply
        else:
            one.transport.abort()
    return count


def _filter(name: bytes, value: bytes) -> Has:
    match name.upper():
        case b"ID":
            number = _id(value)
            return lambda one: one.session.id == number
        case b"TYPE":
            return _is_of_type(value)
        case b"USER":
            user = read_text(value)
            return lambda one: one.session.user_name == user
        case b"ADDR":
            return lambda one: one.session.peer.encode() == value
        case b"LADDR":
            return lambda one: one.session.local.encode() == value
        case b"MAXAGE":
            seconds = read_count(value)
            return lambda one: time.time() - one.session.connected_at >= seconds
    raise CommandError(f"ERR syntax error: {quoted(name)} {quoted(value)} is no filter of CLIENT KILL")


def _id(word: bytes) -> int:
    if not word.isdigit() or len(word) > 18 or not int(word):
        raise CommandError("ERR client-id should be greater than 0")
    return int(word)


def _is_of_type(kind: bytes) -> Has:
    if kind.upper() not in TYPES:
        raise CommandError(f"ERR Unknown client type {quoted(kind)}")
    return lambda one: kind.upper() == TYPES[0]


def _unblock(session: ClientSession, words: list[bytes]) -> Reply:
    """Returns whether that client was blocked."""
    session.check_everywhere(Right.MANAGE)
    if len(words) not in (1, 2):
        raise wrong_arity("client|unblock")
    reason = words[1].upper() if len(words) == 2 else b"TIMEOUT"
    if reason not in (b"TIMEOUT", b"ERROR"):
        raise CommandError("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
    number = read_count(words[0])
    waiting = [one for one in session.server.connections if one.session.id == number]
    return int(any([one.unblock(UNBLOCKED if reason == b"ERROR" else None) for one in waiting]))


def _get_id(session: ClientSession, words: list[bytes]) -> Reply:
    return session.id


def _get_name(session: ClientSession, words: list[bytes]) -> Reply:
    return session.name or None


def _help(session: ClientSession, words: list[bytes]) -> Reply:
    return ["CLIENT <subcommand>. Subcommands are:", *sorted(CLIENT)]


CLIENT: dict[str, Callable[[ClientSession, list[bytes]], Reply]] = {
    "ID": _get_id,
    "GETNAME": _get_name,
    "SETNAME": _set_name,
    "SETINFO": _set_info,
    "INFO": _info,
    "LIST": _list,
    "KILL": _kill,
    "UNBLOCK": _unblock,
    "NO-EVICT": lambda session, words: OK,
    "NO-TOUCH": lambda session, words: OK,
    "HELP": _help,
}
