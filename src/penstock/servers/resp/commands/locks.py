"""SET, GET and EVALSHA, as far as client locks need them: acquired with SET NX, checked with GET, released by scripts.

There is no Lua interpreter. redis-py releases, extends and reacquires locks with three scripts whose text, and so whose
SHA-1, has not changed for years; a call of one of these does the same in Python.
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
    """Acquire a lock. Returns OK, or nil if it is held. Other values cannot be set."""
    milliseconds = _lock_options(words)
    engine = session.backend.engine

    def operation() -> Reply:
        return OK if not exists(session, key) and locks.take(engine, key, token, milliseconds) else None

    return session.backend.write(operation)


def _lock_options(words: list[bytes]) -> int | None:
    """The expiry in milliseconds; None for no expiry."""
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
    """Returns the token of a lock, or nil if it is not held."""

    def operation() -> Reply:
        if exists(session, key):
            raise CommandError(WRONG_TYPE)
        lock = locks.find(session.backend.engine, key)
        return None if lock is None else lock.token

    return session.backend.read(operation)


class _Script(NamedTuple):
    """A known script: its number of arguments, and its effect."""

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
    """Release, extend or reacquire a lock as redis-py does; other scripts are not known."""
    script = SCRIPTS.get(sha1.lower())
    if script is None:
        raise CommandError("NOSCRIPT No matching script: Lua does not run here")
    if words[0] != b"1" or len(words) != 2 + script.arguments:
        raise CommandError(f"ERR {quoted(sha1)} takes 1 key and {script.arguments} arguments")
    name = read_name("queue")(words[1])
    session.check(Right.RECEIVE, name)
    return session.backend.write(lambda: int(script.run(session, name, words[2:])))
