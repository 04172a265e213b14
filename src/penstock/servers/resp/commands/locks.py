"""SET, GET and EVALSHA as far as locks of clients need them: taken with SET NX, checked with GET, and freed by scripts.

Lua does not run here. redis-py frees, extends and takes a lock again with three scripts of its own, which have had the
same text, and so the same SHA-1, for years; a call of one of these does what the script says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.servers.access import Right
from penstock.servers.resp import locks
from penstock.servers.resp.arguments import Blob, QueueName, Words, read_integer, read_name
from penstock.servers.resp.commands.keyspace import exists
from penstock.servers.resp.encoder import OK, Reply
from penstock.servers.resp.errors import CommandError, quoted
from penstock.servers.resp.session import Begun, ClientSession
from penstock.servers.resp.table import Order, command

FAMILY = "string"
ONLY_LOCKS = "ERR only locks can be set here: SET key token NX [PX milliseconds | EX seconds]"
WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


@command("SET", Order.TURN, Right.RECEIVE, FAMILY, usage="SET key token NX [PX milliseconds|EX seconds]")
def set_lock(session: ClientSession, key: QueueName, token: Blob, words: Words) -> Begun:
    """Take a lock: OK, or nil when somebody holds it. Other values cannot be set."""
    milliseconds = _lock_options(words)
    engine = session.backend.engine

    def operation() -> Reply:
        return OK if not exists(session, key) and locks.take(engine, key, token, milliseconds) else None

    return session.backend.write(operation, lambda reply: reply)


def _lock_options(words: list[bytes]) -> int | None:
    """How many milliseconds it is held; None for as long as nobody frees it."""
    upper = [word.upper() for word in words]
    if b"NX" not in upper:
        raise CommandError(ONLY_LOCKS)
    at = upper.index(b"NX")
    rest = upper[:at] + upper[at + 1 :]
    match rest:
        case []:
            return None
        case [b"PX", value]:
            return _time(value)
        case [b"EX", value]:
            return _time(value) * 1000
    raise CommandError(ONLY_LOCKS)


def _time(value: bytes) -> int:
    time = read_integer(value)
    if not 0 < time < 10**12:
        raise CommandError("ERR invalid expire time in 'set' command")
    return time


@command("GET", Order.ALONE, Right.LOOK, FAMILY)
def get_lock(session: ClientSession, key: QueueName) -> Begun:
    """The token of a lock, or nil when nobody holds it."""

    def operation() -> Reply:
        if exists(session, key):
            raise CommandError(WRONG_TYPE)
        lock = locks.find(session.backend.engine, key)
        return None if lock is None else lock.token

    return session.backend.read(operation, lambda reply: reply)


class _Script(NamedTuple):
    """A script that is known by its SHA-1: how many arguments it takes, and what it does."""

    arguments: int
    run: Callable[[ClientSession, str, list[bytes]], bool]


def _free(session: ClientSession, name: str, words: list[bytes]) -> bool:
    return locks.free(session.backend.engine, name, words[0])


def _extend(session: ClientSession, name: str, words: list[bytes]) -> bool:
    adds = words[2] == b"0"
    time = read_integer(words[1])
    return locks.extend(session.backend.engine, name, words[0], time, adds=adds, needs_end=True)


def _take_again(session: ClientSession, name: str, words: list[bytes]) -> bool:
    time = read_integer(words[1])
    return locks.extend(session.backend.engine, name, words[0], time, adds=False, needs_end=False)


SCRIPTS = {
    b"c3f8721cbb97f72bc19e972846bd7aaf91901658": _Script(1, _free),
    b"a4e8783852e6b949f9ef3a97212805108459a890": _Script(3, _extend),
    b"1cac51482acf5858da00f6d685d68f886cd6b6b2": _Script(2, _take_again),
}


@command("EVALSHA", Order.TURN, Right.RECEIVE, "scripting", usage="EVALSHA sha1 1 key token [argument ...]", least=1)
def run_script(session: ClientSession, sha1: Blob, words: Words) -> Begun:
    """Free or extend a lock as redis-py does; other scripts are not known."""
    script = SCRIPTS.get(sha1.lower())
    if script is None:
        raise CommandError("NOSCRIPT No matching script: Lua does not run here")
    if words[0] != b"1" or len(words) != 2 + script.arguments:
        raise CommandError(f"ERR {quoted(sha1)} takes 1 key and {script.arguments} arguments")
    name = read_name("queue")(words[1])
    session.check(Right.RECEIVE, name)
    return session.backend.write(lambda: int(script.run(session, name, words[2:])), lambda reply: reply)
