"""A cluster: every command goes to the primary of its key's slot, and is repeated where that is safe.

The library follows redirections and refreshes the map of slots. It would also repeat a command whose reply was lost,
which for a send is a second message: its retries are off, and commands are repeated here if they took no effect, or if
their effect is the same when they run twice.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ClusterError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    SlotNotCoveredError,
    TryAgainError,
)

from penstock.domain.errors import InvalidUrl
from penstock.engines.redis.nodes import begun, had_no_effect, raised

PAUSE_SECONDS = 0.05
# The server refused the command, so it took no effect: its slot moves, or its primary is about to be replaced.
_REFUSED = (AskError, TryAgainError, ClusterError, SlotNotCoveredError, ReadOnlyError, BusyLoadingError)
# The reply was lost: the command may have taken effect.
_LOST = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, RedisClusterException)
_FINAL = (redis.exceptions.AuthenticationError, redis.exceptions.AuthorizationError)


class Cluster:
    is_cluster = True

    def __init__(self, make: Callable[[], RedisCluster], name: str, patience_seconds: float) -> None:
        self._make = make
        self._name = name
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()
        self._made: Any = None

    def execute(self, key: str, words: Sequence[Any], *, is_repeatable: bool = False) -> Any:
        def attempt(client: Any) -> Any:
            # With its node, because the library would ask the server which arguments of a function are keys.
            return client.execute_command(*words, target_nodes=client.get_node_from_key(key))

        return self._repeated(attempt, is_repeatable)

    def execute_all(self, key: str, commands: Sequence[Sequence[Any]], *, is_repeatable: bool = False) -> list[Any]:
        def attempt(client: Any) -> list[Any]:
            try:
                return begun(client.get_redis_connection(client.get_node_from_key(key)), commands)
            except (*_REFUSED, *_LOST):
                _refresh(client, key)
                raise

        # After the first command took effect, an error of a later one is no reason to repeat it.
        return raised(self._repeated(attempt, is_repeatable))

    def each(self, *words: Any) -> list[tuple[str, Any]]:
        client = self._client()
        return [(node.name, client.get_redis_connection(node).execute_command(*words)) for node in _primaries(client)]

    def load(self, name: str, source: str) -> None:
        client = self._client()
        node = client.get_node(node_name=name)
        client.get_redis_connection(node).execute_command("FUNCTION", "LOAD", "REPLACE", source)

    def pubsub(self) -> redis.client.PubSub:
        """A message that is published on any node reaches the subscribers of all."""
        found: redis.client.PubSub = self._client().pubsub(ignore_subscribe_messages=True)
        return found

    def end_interrupted(self) -> None:
        for node in [] if self._made is None else self._made.get_nodes():
            if node.redis_connection is not None:
                node.redis_connection.connection_pool.disconnect(inuse_connections=False)

    def close(self) -> None:
        with self._lock:
            if self._made is not None:
                self._made.close()
                self._made = None

    def _repeated(self, attempt: Callable[[Any], Any], is_repeatable: bool) -> Any:
        client = self._client()
        ends = time.monotonic() + self._patience_seconds
        while True:
            try:
                return attempt(client)
            except (RedisError, RedisClusterException) as error:
                if time.monotonic() >= ends or not _may_repeat(error, is_repeatable):
                    raise
            time.sleep(PAUSE_SECONDS)

    def _client(self) -> Any:
        """The client of the library, which connects when it is made."""
        with self._lock:
            if self._made is None:
                try:
                    self._made = self._make()
                except RedisClusterException as error:
                    cause = _cause(error)
                    if isinstance(cause, ResponseError) and "cluster support disabled" in str(cause):
                        raise InvalidUrl(
                            f"{self._name} is not a cluster: connect with redis:// to a single server"
                        ) from error
                    raise cause from error
            return self._made


def _may_repeat(error: Exception, is_repeatable: bool) -> bool:
    if isinstance(error, _FINAL):
        return False
    if isinstance(error, _REFUSED) or had_no_effect(error) or isinstance(error.__context__, ConnectionRefusedError):
        return True
    return is_repeatable and isinstance(error, _LOST)


def _cause(error: BaseException) -> Exception:
    """The error of the last node that was tried, which says why: a wrong password, a missing right, or nobody
    listens."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, RedisError):
            return found
        found = found.__cause__ or found.__context__
    return redis.exceptions.ConnectionError(str(error))


def _refresh(client: Any, key: str) -> None:
    """Have the library find the node of the key again."""
    with contextlib.suppress(RedisError, RedisClusterException):
        client.execute_command("EXISTS", key, target_nodes=client.get_node_from_key(key))


def _primaries(client: Any) -> Iterator[ClusterNode]:
    yield from sorted(client.get_primaries(), key=lambda node: str(node.name))
