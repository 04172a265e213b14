"""HELLO, AUTH, PING, QUIT and the other commands about the connection itself."""

from __future__ import annotations

import time
from typing import Any

from penstock.servers.access import DEFAULT, Right
from penstock.servers.resp.arguments import Count, Words, read_text
from penstock.servers.resp.encoder import OK, RESP2, RESP3, Reply, Simple
from penstock.servers.resp.errors import CommandError, quoted, wrong_arity
from penstock.servers.resp.session import Begun, ClientSession
from penstock.servers.resp.table import Order, command

FAMILY = "connection"
# Clients enable features by this version.
REDIS_VERSION = "7.4.0"
NO_PASSWORD = (
    "ERR AUTH <password> called without any password configured for the default user. "
    "Are you sure your configuration is correct?"
)


@command(
    "HELLO",
    Order.ALONE,
    Right.NOTHING,
    FAMILY,
    is_open=True,
    in_multi=False,
    usage="HELLO [protocol [AUTH user password] [SETNAME name]]",
)
def hello(session: ClientSession, words: Words) -> Begun:
    """Select the protocol version, and authenticate."""
    if not words:
        _check_known(session)
        return greeting(session)
    if not words[0].isdigit():
        raise CommandError("ERR Protocol version is not an integer or out of range")
    if words[0] not in (b"2", b"3"):
        raise CommandError("NOPROTO unsupported protocol version")
    name, login = _hello_options(words[1:])
    if login is None:
        _check_known(session)
        return _greet(session, int(words[0]), name)
    return _log_in_and_greet(session, int(words[0]), name, login)


def _hello_options(words: list[bytes]) -> tuple[str | None, tuple[str, bytes] | None]:
    name: str | None = None
    login: tuple[str, bytes] | None = None
    at = 0
    while at < len(words):
        match words[at].upper(), len(words) - at - 1:
            case b"AUTH", left if left >= 2:
                login = read_text(words[at + 1]), words[at + 2]
                at += 3
            case b"SETNAME", left if left >= 1:
                name = client_name(words[at + 1])
                at += 2
            case _:
                raise CommandError(f"ERR Syntax error in HELLO option {quoted(words[at])}")
    return name, login


def _check_known(session: ClientSession) -> None:
    if session.user_name is None:
        raise CommandError(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH "
            "<user> <pass> option can be used to authenticate the client and select the RESP protocol version at the "
            "same time"
        )


async def _log_in_and_greet(session: ClientSession, protocol: int, name: str | None, login: tuple[str, bytes]) -> Reply:
    await session.log_in(*login)
    return _greet(session, protocol, name)


def _greet(session: ClientSession, protocol: int, name: str | None) -> Reply:
    session.protocol = RESP3 if protocol == 3 else RESP2
    if name is not None:
        session.rename(name)
    return greeting(session)


def greeting(session: ClientSession) -> dict[str, Any]:
    # In this order: node-redis reads by index in RESP2.
    return {
        "server": "penstock",
        "version": REDIS_VERSION,
        "proto": session.protocol,
        "id": session.id,
        "mode": "standalone",
        "role": "master",
        "modules": [],
    }


@command("AUTH", Order.ALONE, Right.NOTHING, FAMILY, is_open=True, in_multi=False, usage="AUTH [user] password")
def authenticate(session: ClientSession, words: Words) -> Begun:
    """Authenticate."""
    if len(words) not in (1, 2):
        raise wrong_arity("auth")
    default = session.server.users.find(DEFAULT)
    if len(words) == 1 and default is not None and default.password_hash is None:
        raise CommandError(NO_PASSWORD)
    name = DEFAULT if len(words) == 1 else read_text(words[0])
    return _log_in(session, name, words[-1])


async def _log_in(session: ClientSession, name: str, password: bytes) -> Reply:
    await session.log_in(name, password)
    return OK


@command("PING", Order.HERE, Right.NOTHING, FAMILY, usage="PING [message]")
def ping(session: ClientSession, words: Words) -> Reply:
    """Test the connection."""
    if len(words) > 1:
        raise wrong_arity("ping")
    return words[0] if words else Simple("PONG")


@command("ECHO", Order.HERE, Right.NOTHING, FAMILY, usage="ECHO message")
def echo(session: ClientSession, words: Words) -> Reply:
    """Return the message."""
    if len(words) != 1:
        raise wrong_arity("echo")
    return words[0]


@command("QUIT", Order.HERE, Right.NOTHING, FAMILY, is_open=True, in_multi=False)
def quit_(session: ClientSession, words: Words) -> Reply:
    """Close the connection."""
    session.wants_close = True
    return OK


@command("RESET", Order.ALONE, Right.NOTHING, FAMILY, is_open=True, in_multi=False)
def reset(session: ClientSession) -> Reply:
    """Reset the state of the connection."""
    session.reset()
    return Simple("RESET")


@command("SELECT", Order.HERE, Right.NOTHING, FAMILY)
def select(session: ClientSession, index: Count) -> Reply:
    """Select database 0, the only one."""
    if index:
        raise CommandError(f"ERR DB index is out of range: there is only 0, not {index}")
    return OK


@command("READONLY", Order.HERE, Right.NOTHING, FAMILY)
def readonly(session: ClientSession) -> Reply:
    """Accepted without effect, for clients that always send it."""
    return OK


@command("TIME", Order.HERE, Right.NOTHING, FAMILY)
def get_time(session: ClientSession) -> Reply:
    """The server's clock: seconds, and microseconds within the second."""
    seconds, microseconds = divmod(time.time_ns() // 1000, 1_000_000)
    return [str(seconds), str(microseconds)]


def client_name(data: bytes) -> str:
    if any(byte <= 32 or byte > 126 for byte in data):
        raise CommandError("ERR Client names cannot contain spaces, newlines or special characters.")
    if len(data) > 255:
        raise CommandError("ERR Client names have at most 255 characters.")
    return data.decode()
