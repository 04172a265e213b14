"""A cluster of Redis servers on loopback; the shared one ends with the process."""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
from functools import cache, partial
from pathlib import Path
from types import TracebackType

from redis.crc import key_slot

import penstock
from penstock.chaos.redis_cluster import PRIMARIES, ClusterServer, RedisCluster, await_until
from tests.engines.redis.server import PATIENCE_SECONDS, program
from tests.ports import LOOPBACK

__all__ = ["PRIMARIES", "ClusterServer", "RedisServers", "await_until", "fresh_cluster_store", "shared_cluster"]
_numbers = itertools.count(1)


def fresh_cluster_store() -> str:
    """The URL of an empty store on the cluster of this process: a prefix that no other test has."""
    return f"{shared_cluster().url}?prefix=t{next(_numbers)}"


@cache
def shared_cluster() -> RedisServers:
    """Nobody stops its servers, so it may wait long before it replaces one: a busy machine must not look like a dead
    server."""
    servers = RedisServers(node_timeout_seconds=60)
    atexit.register(servers.stop)
    servers.build()
    with penstock.connect(servers.url) as store:
        store.migrate()
    return servers


class RedisServers(RedisCluster):
    """Three primaries and a replica of each, whose slots can be moved, and which others can join."""

    def __init__(self, node_timeout_seconds: float) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="penstock-cluster-")), node_timeout_seconds, program())

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(f'{LOOPBACK}:{node.port}' for node in self.nodes[:2])}/"

    @property
    def primaries(self) -> list[ClusterServer]:
        return self.nodes[:PRIMARIES]

    @property
    def replicas(self) -> list[ClusterServer]:
        return self.nodes[PRIMARIES : 2 * PRIMARIES]

    def join(self) -> ClusterServer:
        """A new primary that all others know; it has no slots, and no functions."""
        node = self.add()
        for other in self.nodes:
            await_until(partial(other.knows, node), "the nodes to know the new one")
            await_until(partial(node.knows, other), "the new node to know the others")
        await_until(lambda: all(one.state == "ok" for one in self.nodes), "the new node to take calls")
        return node

    def owner(self, key: str) -> ClusterServer:
        """The primary of the key's slot."""
        slot = key_slot(key.encode())
        for node in self.nodes:
            if node.is_running:
                for first, last, (_, port, *_), *_ in node.command("CLUSTER", "SLOTS"):
                    if first <= slot <= last:
                        return next(one for one in self.nodes if one.port == port)
        raise AssertionError(f"nobody has slot {slot}")

    def move_slot(self, key: str, target: ClusterServer) -> None:
        """Move the slot of a key, key by key, as redis-cli does."""
        source, slot = self.owner(key), key_slot(key.encode())
        target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        while keys := source.command("CLUSTER", "GETKEYSINSLOT", slot, 1):
            source.command("MIGRATE", LOOPBACK, target.port, "", 0, PATIENCE_SECONDS * 1000, "KEYS", *keys)
        for node in (target, source, *self.primaries):
            node.command("CLUSTER", "SETSLOT", slot, "NODE", target.id)
        await_until(lambda: self.owner(key) is target, "the nodes to agree")

    def stop(self) -> None:
        super().stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> RedisServers:
        try:
            self.build()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()
