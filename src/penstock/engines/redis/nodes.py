"""The server behind a store, or the nodes of a cluster behind it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import redis

from penstock.domain.errors import InvalidUrl

# First words of errors of a server that runs nothing for now: the call had no effect and is made again.
_NOT_NOW = ("BUSY", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "NOREPLICAS")
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.01, 0.5


class Nodes(Protocol):
    """Where commands are run. Errors are those of the library."""

    is_cluster: bool

    def execute(self, key: str, words: Sequence[Any], *, is_repeatable: bool = False) -> Any:
        """Run a command on the node of the key. One that is repeatable has the same effect when it runs twice."""

    def execute_all(self, key: str, commands: Sequence[Sequence[Any]], *, is_repeatable: bool = False) -> list[Any]:
        """Run commands one after the other on one connection to the node of the key."""

    def each(self, *words: Any) -> list[tuple[str, Any]]:
        """Run a command on every node that takes writes: the name of each and its reply."""

    def load(self, name: str, source: str) -> None:
        """Load a library of functions into a node named by `each`, in place of an older one."""

    def pubsub(self) -> redis.client.PubSub: ...

    def end_interrupted(self) -> None:
        """Close the idle connections: one of them may be given the reply to an interrupted command yet, which the next
        command would take for its own."""

    def close(self) -> None: ...


class SingleServer:
    is_cluster = False

    def __init__(self, client: redis.Redis, name: str, busy_seconds: float) -> None:
        self._client: Any = client
        self._name = name
        self._busy_seconds = busy_seconds
        self._is_checked = False

    def execute(self, key: str, words: Sequence[Any], *, is_repeatable: bool = False) -> Any:
        return self._patiently(lambda: self._client.execute_command(*words))

    def execute_all(self, key: str, commands: Sequence[Sequence[Any]], *, is_repeatable: bool = False) -> list[Any]:
        replies = self._patiently(lambda: begun(self._client, commands))
        return raised(replies)

    def each(self, *words: Any) -> list[tuple[str, Any]]:
        return [(self._name, self.execute("", words))]

    def load(self, name: str, source: str) -> None:
        self._client.execute_command("FUNCTION", "LOAD", "REPLACE", source)

    def pubsub(self) -> redis.client.PubSub:
        found: redis.client.PubSub = self._client.pubsub(ignore_subscribe_messages=True)
        return found

    def end_interrupted(self) -> None:
        self._client.connection_pool.disconnect(inuse_connections=False)

    def close(self) -> None:
        self._client.close()

    def _patiently(self, call: Callable[[], Any]) -> Any:
        """Make a call, again and again for `busy_seconds` if the server refuses to run it for now."""
        deadline, pause = time.monotonic() + self._busy_seconds, _FIRST_PAUSE_SECONDS
        while True:
            try:
                self._check()
                return call()
            except redis.exceptions.ReadOnlyError:
                # A primary may have taken over under the same name: connect again with the next call.
                self._client.connection_pool.disconnect()
                raise
            except redis.exceptions.RedisError as error:
                if not had_no_effect(error) or time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _check(self) -> None:
        """Refuse a node of a cluster before the first call: it would run the calls of its own slots, and no others."""
        if self._is_checked:
            return
        try:
            told = self._client.execute_command("INFO", "server")
            mode = told.get("redis_mode") or told.get("server_mode")  # as Valkey names it
        except redis.exceptions.NoPermissionError:
            mode = None
        if mode == "cluster":
            raise InvalidUrl(f"{self._name} is a node of a cluster: connect with redis+cluster://")
        self._is_checked = True


def had_no_effect(error: Exception) -> bool:
    """Whether the server refused to run the call for now, or is no longer the primary that a sentinel named."""
    if isinstance(error, redis.exceptions.BusyLoadingError):  # its text has lost the code
        return True
    return str(error).partition(" ")[0] in _NOT_NOW or (
        isinstance(error, redis.exceptions.ConnectionError)
        and isinstance(error.__context__, redis.exceptions.ReadOnlyError)
    )


def begun(client: redis.Redis, commands: Sequence[Sequence[Any]]) -> list[Any]:
    """Replies and errors of commands; an error of the first is raised."""
    pipeline: Any = client.pipeline(transaction=False)
    for words in commands:
        pipeline.execute_command(*words)
    replies: list[Any] = pipeline.execute(raise_on_error=False)
    return [*raised(replies[:1]), *replies[1:]]


def raised(replies: list[Any]) -> list[Any]:
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies
