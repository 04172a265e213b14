"""A cluster of Redis servers on loopback, each in a folder of its own; the shared one ends with the process."""

from __future__ import annotations

import atexit
import itertools
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import Any

import redis
from redis.crc import key_slot

import penstock
from tests.engines.redis.server import PATIENCE_SECONDS, program
from tests.ports import LOOPBACK, free_port

SLOTS = 16_384
PRIMARIES = 3
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
    servers.start()
    with penstock.connect(servers.url) as store:
        store.migrate()
    return servers


class ClusterServer:
    """One node."""

    def __init__(self, node_timeout_seconds: float) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-node-"))
        self.port, self.bus_port = free_port(), free_port()
        self.client: Any = redis.Redis(LOOPBACK, self.port, protocol=2)
        command = [program(), "--bind", LOOPBACK, "--port", str(self.port), "--cluster-port", str(self.bus_port)]
        command += [
            "--dir",
            str(self.folder),
            "--logfile",
            str(self.folder / "log"),
            "--save",
            "",
            "--appendonly",
            "no",
        ]
        command += ["--cluster-enabled", "yes", "--cluster-node-timeout", str(int(node_timeout_seconds * 1000))]
        # A replica is promoted however long ago it heard of its primary, and follows it without waiting for others.
        command += ["--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"]
        self.process = subprocess.Popen(command)
        await_until(self._answers, f"the server on port {self.port} to answer")
        self.id = self.command("CLUSTER", "MYID").decode()

    def _answers(self) -> bool:
        assert self.process.poll() is None, f"redis-server ended: {(self.folder / 'log').read_text()[-2000:]}"
        try:
            return bool(self.client.ping())
        except redis.exceptions.ConnectionError:
            return False

    def command(self, *words: Any) -> Any:
        return self.client.execute_command(*words)

    @property
    def state(self) -> str:
        info: bytes = self.command("CLUSTER", "INFO")
        return info.decode().partition("cluster_state:")[2].split()[0]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)

    def stop(self) -> None:
        self.client.close()
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class RedisServers:
    """Three primaries with a third of the slots each, and a replica of each."""

    def __init__(self, node_timeout_seconds: float) -> None:
        self._node_timeout_seconds = node_timeout_seconds
        self.nodes: list[ClusterServer] = []

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(f'{LOOPBACK}:{node.port}' for node in self.nodes[:2])}/"

    @property
    def primaries(self) -> list[ClusterServer]:
        return self.nodes[:PRIMARIES]

    @property
    def replicas(self) -> list[ClusterServer]:
        return self.nodes[PRIMARIES : 2 * PRIMARIES]

    def start(self) -> None:
        for _ in range(2 * PRIMARIES):
            self.add()
        for place, node in enumerate(self.primaries):
            first, after = place * SLOTS // PRIMARIES, (place + 1) * SLOTS // PRIMARIES
            node.command("CLUSTER", "ADDSLOTSRANGE", first, after - 1)
        for primary, replica in zip(self.primaries, self.replicas, strict=True):
            await_until(partial(self._knows, replica, primary), "the nodes to know each other")
            replica.command("CLUSTER", "REPLICATE", primary.id)
        await_until(lambda: all(node.state == "ok" for node in self.nodes), "the cluster to serve all slots")
        await_until(lambda: all(self._is_followed(node) for node in self.primaries), "the replicas to be in step")

    def join(self) -> ClusterServer:
        """A new primary that all others know; it has no slots, and no functions."""
        node = self.add()
        for other in self.nodes:
            await_until(partial(self._knows, other, node), "the nodes to know the new one")
            await_until(partial(self._knows, node, other), "the new node to know the others")
        await_until(lambda: all(one.state == "ok" for one in self.nodes), "the new node to take calls")
        return node

    def add(self) -> ClusterServer:
        """Start a node and introduce it to the cluster."""
        node = ClusterServer(self._node_timeout_seconds)
        self.nodes.append(node)
        node.command("CLUSTER", "SET-CONFIG-EPOCH", len(self.nodes))
        if len(self.nodes) > 1:
            node.command("CLUSTER", "MEET", LOOPBACK, self.nodes[0].port, self.nodes[0].bus_port)
        return node

    def owner(self, key: str) -> ClusterServer:
        """The primary of the key's slot."""
        slot = key_slot(key.encode())
        for node in self.nodes:
            if node.process.poll() is None:
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

    def _knows(self, node: ClusterServer, other: ClusterServer) -> bool:
        found: bytes = node.command("CLUSTER", "NODES")
        return other.id in found.decode()

    def _is_followed(self, node: ClusterServer) -> bool:
        replication = node.command("INFO", "replication")
        return bool(replication["connected_slaves"] == 1 and replication["slave0"]["state"] == "online")

    def stop(self) -> None:
        # All are killed before any is waited for: the process of the tests may be given little time at its end.
        for node in self.nodes:
            node.process.kill()
        for node in self.nodes:
            node.stop()

    def __enter__(self) -> RedisServers:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()


def await_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"waited {PATIENCE_SECONDS} s for {what}"
        time.sleep(0.02)
