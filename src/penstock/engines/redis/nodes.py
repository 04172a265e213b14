"""The server behind a store, or the nodes of a cluster behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import redis

from penstock.domain.errors import InvalidUrl


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

    def close(self) -> None: ...


class SingleServer:
    is_cluster = False

    def __init__(self, client: redis.Redis, name: str) -> None:
        self._client: Any = client
        self._name = name
        self._is_checked = False

    def execute(self, key: str, words: Sequence[Any], *, is_repeatable: bool = False) -> Any:
        self._check()
        return self._client.execute_command(*words)

    def execute_all(self, key: str, commands: Sequence[Sequence[Any]], *, is_repeatable: bool = False) -> list[Any]:
        self._check()
        return pipelined(self._client, commands)

    def each(self, *words: Any) -> list[tuple[str, Any]]:
        return [(self._name, self.execute("", words))]

    def load(self, name: str, source: str) -> None:
        self._client.execute_command("FUNCTION", "LOAD", "REPLACE", source)

    def pubsub(self) -> redis.client.PubSub:
        found: redis.client.PubSub = self._client.pubsub(ignore_subscribe_messages=True)
        return found

    def close(self) -> None:
        self._client.close()

    def _check(self) -> None:
        """Refuse a node of a cluster before the first call: it would run the calls of its own slots, and no others."""
        if self._is_checked:
            return
        try:
            mode = self._client.execute_command("INFO", "server").get("redis_mode")
        except redis.exceptions.NoPermissionError:
            mode = None
        if mode == "cluster":
            raise InvalidUrl(f"{self._name} is a node of a cluster: connect with redis+cluster://")
        self._is_checked = True


def pipelined(client: redis.Redis, commands: Sequence[Sequence[Any]]) -> list[Any]:
    pipeline: Any = client.pipeline(transaction=False)
    for words in commands:
        pipeline.execute_command(*words)
    replies: list[Any] = pipeline.execute(raise_on_error=False)
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies
