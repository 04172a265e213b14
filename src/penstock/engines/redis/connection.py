"""The connection to a server: calls of functions, and its errors as those of the domain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from penstock.domain.errors import (
    DiskError,
    EngineTooOld,
    InvalidInput,
    NotAStore,
    PenstockError,
    SchemaMissing,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from penstock.domain.identity import SALT_BITS
from penstock.domain.policy import Policy
from penstock.domain.refusals import no_group, no_queue
from penstock.engines.redis import library, notices, refusals, shards
from penstock.engines.redis.drafts import policy_text
from penstock.engines.redis.durability import Durability
from penstock.engines.redis.nodes import Nodes, had_no_effect

_pack = msgspec.msgpack.Encoder().encode
# Verbs after which another call may find more to do, so that waiting calls look again.
WAKING = frozenset(
    ("send", "settle", "ack_all", "declare", "flush", "clear", "delete", "remove", "trim", "seek", "forget", "redrive",
     "purge", "batch_open", "batch_start", "batch_cancel", "batch_continue", "release", "take_over", "deregister",
     "deliver", "join_send", "shard_policy", "shard_delete")
)  # fmt: skip
# Verbs that change facts of the store.
STORE_WRITES = frozenset(("record", "claim_sweep"))
# Verbs with the same effect when they run twice, so that they are repeated after a lost reply.
REPEATABLE = frozenset(
    ("settle", "ack_all", "extend", "heartbeat", "keep_traces", "discard", "fence", "shards_mix", "shard_open",
     "shard_group", "shard_policy")
)  # fmt: skip
# The same of commands.
_REPEATABLE_COMMANDS = frozenset(
    ("HGET", "HMGET", "HEXISTS", "HGETALL", "HKEYS", "SMEMBERS", "PUBLISH", "HDEL", "HSETNX")
)
# The error of a function that runs a command which the user may not.
_LACKS_RIGHT = "The user executing the script can't"
LIBRARY_ERRORS = (redis.exceptions.RedisError, redis.exceptions.RedisClusterException)
_UNREACHABLE = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.ClusterError,
    redis.exceptions.RedisClusterException,
)


class RedisDatabase:
    """One store on a server: its functions, called by name with the key of a queue or of the store."""

    def __init__(
        self,
        nodes: Nodes,
        name: str,
        prefix: str,
        clock: Callable[[], int] | None,
        random: Callable[[], float],
        durability: Durability,
    ) -> None:
        self.nodes = nodes
        self.name = name
        self.prefix = prefix
        self.clock = clock
        self.random = random
        self._durability = durability
        self._has_waitaof: bool | None = None
        # Loads the functions into nodes that lack them; False when no node has them.
        self.spread: Callable[[], bool] = lambda: False
        self.on_commit: Callable[[], None] = lambda: None
        self.may_publish: Callable[[], bool] = lambda: False

    def close(self) -> None:
        self.nodes.close()

    # -- keys ------------------------------------------------------------------------------------------------------

    def queue_key(self, queue: str) -> str:
        return f"{self.prefix}{{q:{shards.tag(queue)}}}"

    @property
    def store_key(self) -> str:
        return f"{self.prefix}{{store}}"

    @property
    def channel(self) -> str:
        return f"{self.prefix}:commits"

    # -- calls -----------------------------------------------------------------------------------------------------

    def read(self, verb: str, queue: str, **given: Any) -> Any:
        return self._call(verb, self.queue_key(queue), queue, given, ())

    def write(self, verb: str, queue: str, payloads: Sequence[bytes] = (), **given: Any) -> Any:
        """Call a verb that changes the queue. A queue that would be created is registered before, so that no sweep
        misses it."""
        key = self.queue_key(queue)
        created: dict[str, bool] = {}
        if verb in WAKING and self.may_publish():
            given["notify"] = self.channel
        while True:
            reply = self._call(verb, key, queue, given, payloads, waits=True)
            if not (isinstance(reply, list) and reply[:2] == [b"!", b"NEW_QUEUE"]):
                if verb in WAKING:
                    self.on_commit()
                return reply
            name = reply[2].decode()
            self._run(
                f"{self.store_key}:queues", ("SADD", f"{self.store_key}:queues", name), waits=True, is_repeatable=True
            )
            created[name] = True
            salt = int(self.random() * (1 << SALT_BITS))
            given = {**given, "create": {"names": created, "policy": policy_text(Policy()), "salt": salt}}

    def store_call(self, verb: str, key: str, **given: Any) -> Any:
        return self._call(verb, key, "", given, (), waits=verb in STORE_WRITES)

    def _call(
        self, verb: str, key: str, queue: str, given: dict[str, Any], payloads: Sequence[bytes], waits: bool = False
    ) -> Any:
        now = "" if self.clock is None else str(self.clock())
        given["version"] = library.VERSION
        if self.nodes.is_cluster:
            given["cluster"] = True
            given["slots"] = shards.parsed(queue).slots
        words = ("FCALL", f"penstock_{verb}", 1, key, now, _pack(given), *payloads)
        is_repeatable = not waits or verb in REPEATABLE
        try:
            reply = self._run(key, words, waits=waits, is_repeatable=is_repeatable)
        except SchemaMissing:
            if not self.spread():
                raise
            reply = self._run(key, words, waits=waits, is_repeatable=is_repeatable)
        if isinstance(reply, list) and reply and reply[0] == b"+":
            _, reply, posted = reply
            notices.deliver(self, queue, posted)
        if isinstance(reply, list) and reply and reply[0] == b"!" and reply[1] != b"NEW_QUEUE":
            raise self._refused(queue, reply[1].decode(), reply[2:])
        return reply

    def _refused(self, queue: str, code: str, values: list[Any]) -> PenstockError:
        queue, _, slots = shards.parsed(queue)
        if code == "SLOTS" or (code == "NO_QUEUE" and slots):
            return shards.ShardsChanged(queue)
        if code == "VERSION":
            return self._other_version(values[0])
        if code == "FOREIGN_KEY":
            return self._foreign_key(values[0].decode())
        if code == "NO_RIGHT":
            return self._missing_right(f"no permission to {values[0].decode()}")
        if code == "NO_QUEUE":
            return no_queue(queue, self.queue_names())
        if code == "NO_GROUP":
            return no_group(queue, values[0].decode(), self.group_names(queue))
        return refusals.error(code, queue, values)

    def command(self, name: str, key: str, *words: Any) -> Any:
        return self._run(key, (name, key, *words), is_repeatable=name in _REPEATABLE_COMMANDS)

    def each(self, *words: Any) -> list[tuple[str, Any]]:
        """The reply of every node that takes writes, by its name."""
        try:
            return self.nodes.each(*words)
        except LIBRARY_ERRORS as error:
            raise self.translated(error) from error

    def _run(self, key: str, words: Sequence[Any], *, waits: bool = False, is_repeatable: bool = False) -> Any:
        try:
            wait = self._wait() if waits and self._durability.is_awaited else ()
            if not wait:
                return self.nodes.execute(key, words, is_repeatable=is_repeatable)
            reply, confirmed = self.nodes.execute_all(key, [words, wait], is_repeatable=is_repeatable)
        except LIBRARY_ERRORS as error:
            raise self.translated(error) from error
        self._check_copies(confirmed)
        return reply

    # -- durability ------------------------------------------------------------------------------------------------

    def _wait(self) -> tuple[Any, ...]:
        """The command that waits until the disk or the replicas have what its connection wrote; nothing when the
        server answers after its disk (appendfsync always)."""
        milliseconds = max(1, int(self._durability.confirm_seconds * 1000))
        if self._durability.replicas:
            return ("WAIT", self._durability.replicas, milliseconds)
        return ("WAITAOF", 1, 0, milliseconds) if self._waits_for_disk() else ()

    def _check_copies(self, confirmed: Any) -> None:
        wanted = self._durability.replicas
        copies = confirmed if wanted else confirmed[0]
        if copies < (wanted or 1):
            where = f"{copies} of {wanted} replicas have it" if wanted else "it is not on the disk"
            seconds = self._durability.confirm_seconds
            raise StoreUnavailable(f"{self.name}: the call took effect, but {where} after {seconds:g} s")

    def _waits_for_disk(self) -> bool:
        """Whether the server can be asked to wait for its disk. One that cannot must do so for every call."""
        if self._has_waitaof is None:
            self._has_waitaof = all([self._writes_to_disk(info) for _, info in self.each("INFO", "server")])
        return self._has_waitaof

    def _writes_to_disk(self, info: dict[str, Any]) -> bool:
        has_waitaof = tuple(int(part) for part in str(info["redis_version"]).split(".")[:2]) >= (7, 2)
        for _, found in self.each("CONFIG", "GET", "append*"):
            settings = {text_of(name): text_of(value) for name, value in pairs_of(found)}
            if settings.get("appendonly") != "yes" or (not has_waitaof and settings["appendfsync"] != "always"):
                raise StoreUnavailable(
                    f"{self.name} does not write to its disk as durability=aof needs: set appendonly yes"
                    + ("" if has_waitaof else " and appendfsync always, because this server has no WAITAOF")
                )
        return has_waitaof

    def publish(self) -> None:
        """Wake waiting calls, of this process and others."""
        self.on_commit()
        self.command("PUBLISH", self.channel, "")

    # -- names -----------------------------------------------------------------------------------------------------

    def has(self, queue: str) -> bool:
        return bool(self.command("HEXISTS", self.queue_key(queue), "policy"))

    def registered(self) -> list[str]:
        """The names of queues that exist, or existed once."""
        return sorted(name.decode() for name in self.command("SMEMBERS", f"{self.store_key}:queues"))

    def queue_names(self) -> list[str]:
        return [name for name in self.registered() if self.has(name)]

    def group_names(self, queue: str) -> list[str]:
        return sorted(name.decode() for name in self.command("HKEYS", f"{self.queue_key(queue)}:gs"))

    # -- errors ----------------------------------------------------------------------------------------------------

    def translated(self, error: Exception) -> StoreError | InvalidInput:
        """The error of the domain that says what the server or the connection did."""
        text = str(error)
        word = text.partition(" ")[0]
        if isinstance(error, redis.exceptions.AuthenticationError | redis.exceptions.AuthorizationError):
            return StoreUnavailable(f"{self.name}: the server refused the login: {text}")
        if isinstance(error, redis.exceptions.NoPermissionError) or word == "NOPERM" or _LACKS_RIGHT in text:
            return self._missing_right(text)
        if "Function not found" in text:
            return SchemaMissing(f"{self.name} has no functions of Penstock: run penstock migrate")
        if "unknown command" in text:
            return EngineTooOld(f"{self.name}: {text}: Penstock needs Redis 7.0 or Valkey 8")
        if isinstance(error, redis.exceptions.OutOfMemoryError) or word == "OOM":
            return StoreFull(f"{self.name}: the server has reached maxmemory: {text}")
        if isinstance(error, redis.exceptions.ReadOnlyError) or word == "READONLY":
            return StoreReadOnly(f"{self.name} is a replica: connect to the primary")
        if word == "MISCONF":
            return DiskError(f"{self.name}: the server cannot write to its disk: {text}")
        if word == "WRONGTYPE" or "WRONGTYPE" in text:
            return NotAStore(f"{self.name}: a key with the prefix {self.prefix!r} is not one of Penstock: {text}")
        if had_no_effect(error):
            return StoreUnavailable(f"{self.name} does not run calls now: {text}")
        if isinstance(error, _UNREACHABLE):
            return StoreUnavailable(f"{self.name} cannot be reached: {text}")
        return StoreError(f"{self.name}: {text}")

    def _missing_right(self, text: str) -> StoreError:
        return StoreReadOnly(f"{self.name}: the user lacks a right: {text}; docs/redis-engine.md lists the rights")

    def _foreign_key(self, key: str) -> StoreError:
        return NotAStore(
            f"{self.name}: the key {key!r} exists and is not one of Penstock: rename it, or choose another prefix"
        )

    def _other_version(self, version: int) -> StoreError:
        if version > library.VERSION:
            return library.too_new(self.name, version)
        return SchemaMissing(f"{self.name} has functions of version {version}: run penstock migrate")


def pairs_of(found: Any) -> Iterable[tuple[Any, Any]]:
    """A map, which the library returns as a dictionary or a flat list."""
    pairs: Iterable[tuple[Any, Any]]
    pairs = found.items() if isinstance(found, dict) else zip(found[::2], found[1::2], strict=True)
    return pairs


def text_of(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def no_retry() -> Retry:
    """A call whose answer was lost may have taken effect: the caller decides."""
    return Retry(NoBackoff(), 0)
