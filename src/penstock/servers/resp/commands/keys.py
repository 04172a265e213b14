"""DEL, EXISTS, SCAN, EXPIRE and the other commands on keys of any type: a queue (a stream) or a lock."""

from __future__ import annotations

from collections.abc import Callable

from penstock.servers.access import Right
from penstock.servers.resp import locks
from penstock.servers.resp.arguments import Blob, QueueName, QueueNames, Text, Words, read_integer, read_name
from penstock.servers.resp.commands.entries_read import forget_entries_read
from penstock.servers.resp.commands.keyspace import STREAM, Glob, exists, place, type_of, visible_keys
from penstock.servers.resp.encoder import OK, Reply, Simple
from penstock.servers.resp.errors import CommandError, printable, unknown_subcommand, wrong_arity
from penstock.servers.resp.session import Begun, ClientSession
from penstock.servers.resp.table import Order, command

FAMILY = "generic"
NO_KEY, NO_TIME = -2, -1
# The default of COUNT in SCAN.
SCANNED = 10
NO_EXPIRY = (
    "ERR a queue cannot expire as a whole: its messages can (QPOLICY queue ttl_seconds n), XTRIM removes old entries, "
    "and DEL the whole queue"
)
NO_RENAME = "ERR a queue cannot be renamed: its producers, workers and schedules know it by its name"
NOT_TRACKED = "ERR {} of keys is not tracked"


# -- removing ----------------------------------------------------------------------------------------------------------


def _delete(session: ClientSession, queues: list[str]) -> Begun:
    def operation() -> int:
        return sum(_clear(session, queue) for queue in dict.fromkeys(queues))

    return session.backend.write(operation)


def _clear(session: ClientSession, queue: str) -> bool:
    """Inside an operation: returns whether the key existed."""
    was_held = locks.free(session.backend.engine, queue)
    for group in session.backend.engine.groups(queue):
        session.backend.consumers.forget(queue, group)
    forget_entries_read(session, queue)
    return session.backend.engine.clear(queue) or was_held


@command("DEL", Order.TURN, Right.MANAGE, FAMILY, least=1)
def delete(session: ClientSession, key: QueueNames) -> Begun:
    """Remove queues with all their messages and groups, but not their policies. Returns how many existed."""
    return _delete(session, key)


@command("UNLINK", Order.TURN, Right.MANAGE, FAMILY, least=1)
def unlink(session: ClientSession, key: QueueNames) -> Begun:
    """The same as DEL."""
    return _delete(session, key)


@command("FLUSHDB", Order.TURN, Right.MANAGE, FAMILY, usage="FLUSHDB [ASYNC|SYNC]")
def flush(session: ClientSession, words: Words) -> Begun:
    """Remove all queues and locks, as DEL does; needs the right to manage every queue."""
    if len(words) > 1 or (words and words[0].upper() not in (b"ASYNC", b"SYNC")):
        raise CommandError("ERR syntax error: FLUSHDB takes ASYNC or SYNC, or nothing")
    session.check_everywhere(Right.MANAGE)

    def operation() -> None:
        for name in [one.name for one in session.backend.engine.queues()] + list(locks.held(session.backend.engine)):
            _clear(session, name)

    return session.backend.write(operation, lambda _: OK)


# -- looking -----------------------------------------------------------------------------------------------------------


@command("EXISTS", Order.ALONE, Right.LOOK, FAMILY, least=1)
def count_existing(session: ClientSession, key: QueueNames) -> Begun:
    """Returns how many of the keys exist; a key that is named twice counts twice."""
    return session.backend.read(lambda: sum(type_of(session, one) is not None for one in key))


@command("TOUCH", Order.ALONE, Right.LOOK, FAMILY, least=1)
def touch(session: ClientSession, key: QueueNames) -> Begun:
    """Returns how many of the keys exist."""
    return count_existing(session, key)


@command("TYPE", Order.ALONE, Right.LOOK, FAMILY)
def get_type(session: ClientSession, key: QueueName) -> Begun:
    """The type of a key: stream for a queue, string for a lock, or none."""
    return session.backend.read(lambda: type_of(session, key), lambda kind: Simple(kind or "none"))


@command("DBSIZE", Order.ALONE, Right.LOOK, FAMILY)
def size(session: ClientSession) -> Begun:
    """Returns the number of keys."""
    return session.backend.read(lambda: len(visible_keys(session)))


@command("KEYS", Order.ALONE, Right.LOOK, FAMILY)
def find_keys(session: ClientSession, pattern: Blob) -> Begun:
    """The keys that match a pattern."""
    glob = Glob(pattern)
    return session.backend.read(lambda: [key for key in visible_keys(session) if glob.matches(key)])


@command("SCAN", Order.ALONE, Right.LOOK, FAMILY, usage="SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]")
def scan(session: ClientSession, cursor: Blob, words: Words) -> Begun:
    """Iterate over the keys. Returns the cursor of the next call, 0 at the end, and some keys."""
    if not cursor.isdigit() or len(cursor) > 20:
        raise CommandError("ERR invalid cursor")
    glob, count, kind = _scan_options(words)

    def operation() -> Reply:
        found = visible_keys(session)
        placed = sorted((place(key), key) for key in found)
        left = [one for one in placed if one[0] >= int(cursor)]
        end = count
        while end < len(left) and left[end][0] == left[end - 1][0]:
            end += 1  # the cursor is a hash: return keys with equal hashes together
        following = left[end][0] if end < len(left) else 0
        return [str(following), [key for _, key in left[:end] if kind in (None, found[key]) and glob.matches(key)]]

    return session.backend.read(operation)


def _scan_options(words: list[bytes]) -> tuple[Glob, int, str | None]:
    glob, count, kind = Glob(b"*"), SCANNED, None
    if len(words) % 2:
        raise CommandError("ERR syntax error: SCAN takes MATCH pattern, COUNT count and TYPE type")
    for name, value in zip(words[::2], words[1::2], strict=True):
        match name.upper():
            case b"MATCH":
                glob = Glob(value)
            case b"COUNT":
                count = read_integer(value)
            case b"TYPE":
                kind = value.decode(errors="replace").lower()
            case _:
                raise CommandError("ERR syntax error: SCAN takes MATCH pattern, COUNT count and TYPE type")
    if count < 1:
        raise CommandError("ERR syntax error: COUNT is 1 or more")
    return glob, count, kind


@command("OBJECT", Order.ALONE, Right.LOOK, FAMILY, usage="OBJECT ENCODING|REFCOUNT|IDLETIME|FREQ key")
def describe(session: ClientSession, subcommand: Text, words: Words) -> Begun:
    """Describe how a key is stored: the encoding of a queue is stream."""
    name = subcommand.upper()
    if name == "HELP":
        return ["OBJECT <subcommand> key. Subcommands are:", "ENCODING", "FREQ", "IDLETIME", "REFCOUNT"]
    if name not in ("ENCODING", "REFCOUNT", "IDLETIME", "FREQ"):
        raise unknown_subcommand("OBJECT", subcommand.encode())
    if len(words) != 1:
        raise wrong_arity(f"object|{printable(subcommand.encode())}")
    key = read_name("queue")(words[0])
    session.check(Right.LOOK, key)

    def finish(kind: str | None) -> Reply:
        if kind is None:
            return None
        if name in ("IDLETIME", "FREQ"):
            raise CommandError(NOT_TRACKED.format("idle time" if name == "IDLETIME" else "access frequency"))
        return 1 if name == "REFCOUNT" else STREAM if kind == STREAM else "raw"

    return session.backend.read(lambda: type_of(session, key), finish)


# -- times to live and names -------------------------------------------------------------------------------------------


def _add_expiry_command(name: str, summary: str, answer: Callable[[int, int], int]) -> None:
    """`answer` gets the expiry of the key and the current time."""

    def run(session: ClientSession, key: QueueName) -> Begun:
        def operation() -> int:
            engine = session.backend.engine
            lock = locks.find(engine, key)
            if lock is None or lock.ends_at is None:
                return NO_KEY if lock is None and not exists(session, key) else NO_TIME
            return answer(lock.ends_at, engine.now())

        return session.backend.read(operation)

    run.__doc__ = summary
    command(name, Order.ALONE, Right.LOOK, FAMILY)(run)


_add_expiry_command(
    "TTL",
    "Seconds until a key expires: locks do, queues never (-1); -2 if it does not exist.",
    lambda ends_at, now: (ends_at - now + 500_000) // 1_000_000,
)
_add_expiry_command("PTTL", "The same in milliseconds.", lambda ends_at, now: (ends_at - now) // 1000)
_add_expiry_command(
    "EXPIRETIME",
    "The time at which a key expires: locks do, queues never (-1); -2 if it does not exist.",
    lambda ends_at, now: (ends_at + 500_000) // 1_000_000,
)
_add_expiry_command("PEXPIRETIME", "The same in milliseconds.", lambda ends_at, now: ends_at // 1000)


@command("PERSIST", Order.TURN, Right.MANAGE, FAMILY)
def persist(session: ClientSession, key: QueueName) -> Begun:
    """Remove the expiry of a lock. Returns 1, or 0 if it had none."""
    engine = session.backend.engine

    def operation() -> int:
        lock = locks.find(engine, key)
        return int(lock is not None and lock.ends_at is not None and locks.set_end(engine, key, lock, None))

    return session.backend.write(operation)


def _expires(name: str, ends_at: Callable[[int, int], int]) -> None:
    """`ends_at` gets the number in the command and the current time."""

    def run(session: ClientSession, key: QueueName, words: Words) -> Begun:
        """Set the expiry of a lock. Refused for a queue; a time in the past deletes the key."""
        return _expire(session, key, name, words, ends_at)

    usage = f"{name} key {'unix-time' if 'AT' in name else 'time'} [NX|XX|GT|LT]"
    command(name, Order.TURN, Right.MANAGE, FAMILY, usage=usage, least=1)(run)


def _expire(
    session: ClientSession, key: str, name: str, words: list[bytes], ends_at: Callable[[int, int], int]
) -> Begun:
    time, options = read_integer(words[0]), _expire_options(name, words[1:])
    engine = session.backend.engine

    def operation() -> int:
        now = engine.now()
        end, lock = ends_at(time, now), locks.find(engine, key)
        if lock is None and not exists(session, key):
            return 0
        if not _is_wanted(options, None if lock is None else lock.ends_at, end):
            return 0
        if end <= now:
            return int(_clear(session, key))
        if lock is None:
            raise CommandError(NO_EXPIRY)
        return int(locks.set_end(engine, key, lock, end))

    return session.backend.write(operation)


def _expire_options(name: str, words: list[bytes]) -> set[bytes]:
    options = {word.upper() for word in words}
    if not options <= {b"NX", b"XX", b"GT", b"LT"}:
        raise CommandError(f"ERR Unsupported option for {name}: NX, XX, GT and LT are known")
    if b"NX" in options and len(options) > 1:
        raise CommandError("ERR NX and XX, GT or LT options at the same time are not compatible")
    if options >= {b"GT", b"LT"}:
        raise CommandError("ERR GT and LT options at the same time are not compatible")
    return options


def _is_wanted(options: set[bytes], before: int | None, end: int) -> bool:
    """Whether the options allow the change; no expiry counts as later than any."""
    if (b"NX" in options and before is not None) or (b"XX" in options and before is None):
        return False
    if b"GT" in options:
        return before is not None and end > before
    return b"LT" not in options or before is None or end < before


_expires("EXPIRE", lambda time, now: now + time * 1_000_000)
_expires("PEXPIRE", lambda time, now: now + time * 1_000)
_expires("EXPIREAT", lambda time, now: time * 1_000_000)
_expires("PEXPIREAT", lambda time, now: time * 1_000)


@command("RENAME", Order.ALONE, Right.MANAGE, FAMILY)
def rename(session: ClientSession, key: QueueName, new_key: QueueName) -> Begun:
    """Refused, except to the same name: producers, workers and schedules know a queue by its name."""
    return _rename(session, key, new_key, OK)


@command("RENAMENX", Order.ALONE, Right.MANAGE, FAMILY)
def rename_if_absent(session: ClientSession, key: QueueName, new_key: QueueName) -> Begun:
    """Refused as RENAME is; 0 if the new key exists."""
    return _rename(session, key, new_key, 0)


def _rename(session: ClientSession, key: str, new_key: str, same: Reply) -> Begun:
    session.check(Right.MANAGE, new_key)

    def operation() -> Reply:
        if not exists(session, key):
            raise CommandError("ERR no such key")
        if key == new_key or (same == 0 and exists(session, new_key)):
            return same
        raise CommandError(NO_RENAME)

    return session.backend.read(operation)
