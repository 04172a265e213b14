"""A Redis Cluster on loopback: three primaries with a third of the slots each, and a replica of each."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import penstock
from penstock.chaos.proxy import LOOPBACK
from penstock.chaos.server import START_SECONDS, found

SLOTS = 16_384
PRIMARIES = 3
# A primary that does not respond for this long is replaced.
NODE_TIMEOUT_SECONDS = 1.0
CONFIRM_SECONDS = 2


class ClusterServer:
    """One node. Its folder has its view of the cluster; its data is in memory only."""

    def __init__(self, folder: Path, node_timeout_seconds: float, program: str | None = None) -> None:
        import redis

        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port, self.bus_port = _free_port(), _free_port()
        self.client: Any = redis.Redis(LOOPBACK, self.port, protocol=2)
        self._lost: type[Exception] = redis.exceptions.ConnectionError
        self._command = [
            program or found(os.environ.get("REDIS_SERVER", "redis-server"), "redis-server"),
            *("--bind", LOOPBACK, "--port", str(self.port), "--cluster-port", str(self.bus_port)),
            *("--dir", str(folder), "--logfile", str(folder / "log"), "--save", "", "--appendonly", "no"),
            *("--cluster-enabled", "yes", "--cluster-node-timeout", str(int(node_timeout_seconds * 1000))),
            # A replica is promoted however old its last contact with the primary is, and does not wait for others.
            *("--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"),
        ]
        self.start()
        self.id = self.command("CLUSTER", "MYID").decode()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)
        await_until(self._answers, f"the server on port {self.port} to answer")

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            said = (self.folder / "log").read_text(errors="replace")[-500:]
            raise penstock.StoreUnavailable(f"{self._command[0]} did not start: {said}")
        try:
            return bool(self.client.ping())
        except self._lost:
            return False

    def command(self, *words: Any) -> Any:
        return self.client.execute_command(*words)

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    @property
    def state(self) -> str:
        info: bytes = self.command("CLUSTER", "INFO")
        return info.decode().partition("cluster_state:")[2].split()[0]

    @property
    def is_followed(self) -> bool:
        """Whether this is a primary with a synchronised replica."""
        told = self.command("INFO", "replication")
        return bool(told["role"] == "master" and told["connected_slaves"] == 1 and told["slave0"]["state"] == "online")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(START_SECONDS)

    def knows(self, other: ClusterServer) -> bool:
        nodes: bytes = self.command("CLUSTER", "NODES")
        return other.id in nodes.decode()


class RedisCluster:
    def __init__(
        self, folder: Path, node_timeout_seconds: float = NODE_TIMEOUT_SECONDS, program: str | None = None
    ) -> None:
        self.folder = folder
        self._node_timeout_seconds = node_timeout_seconds
        self._program = program
        self.nodes: list[ClusterServer] = []

    @property
    def address(self) -> str:
        return f"redis+cluster://{','.join(f'{LOOPBACK}:{node.port}' for node in self.nodes)}/"

    def build(self) -> None:
        for _ in range(2 * PRIMARIES):
            self.add()
        primaries, replicas = self.nodes[:PRIMARIES], self.nodes[PRIMARIES:]
        for place, node in enumerate(primaries):
            first, after = place * SLOTS // PRIMARIES, (place + 1) * SLOTS // PRIMARIES
            node.command("CLUSTER", "ADDSLOTSRANGE", first, after - 1)
        for primary, replica in zip(primaries, replicas, strict=True):
            await_until(partial(replica.knows, primary), "the nodes to know each other")
            replica.command("CLUSTER", "REPLICATE", primary.id)
        await_until(lambda: all(node.state == "ok" for node in self.nodes), "the cluster to serve all slots")
        await_until(lambda: all(node.is_followed for node in primaries), "the replicas to be in step")

    def add(self) -> ClusterServer:
        """Start a node and introduce it to all others: word of it would go around among them for seconds."""
        folder = self.folder / str(len(self.nodes) + 1)
        node = ClusterServer(folder, self._node_timeout_seconds, self._program)
        self.nodes.append(node)
        node.command("CLUSTER", "SET-CONFIG-EPOCH", len(self.nodes))
        for other in self.nodes[:-1]:
            node.command("CLUSTER", "MEET", LOOPBACK, other.port, other.bus_port)
        return node

    def stop(self) -> None:
        # Kill all nodes before waiting for any: the process may have little time to exit.
        for node in self.nodes:
            node.process.kill()
        for node in self.nodes:
            node.kill()
            node.client.close()


class OwnCluster(RedisCluster):
    """Crash one primary. Its replica takes over, and the node returns as the replica of that one, never earlier: it
    would be an empty primary."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._crashes = 0
        self._killed: ClusterServer | None = None
        try:
            self.build()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        return f"{self.address}?durability=replicas=1&confirm_seconds={CONFIRM_SECONDS}"

    def crash(self) -> None:
        await_until(lambda: self._followed() != [], "a primary with a replica")
        primaries = self._followed()
        victim = self._killed = primaries[self._crashes % len(primaries)]
        self._crashes += 1
        others = [node for node in self.nodes if node is not victim]
        victim.kill()
        await_until(lambda: all(_counts_as_gone(node, victim) for node in others), "a replica to be promoted")

    def start(self) -> None:
        if self._killed is not None:
            self._killed.start()
            self._killed = None
        await_until(lambda: len(self._followed()) == PRIMARIES, "the replicas to be in step")

    def close(self) -> None:
        self.stop()

    def _followed(self) -> list[ClusterServer]:
        return [node for node in self.nodes if node.is_running and node.is_followed]


def _counts_as_gone(node: ClusterServer, gone: ClusterServer) -> bool:
    """Whether a node sees all slots served by other nodes."""
    ports = [primary[1] for _, _, primary, *_ in node.command("CLUSTER", "SLOTS")]
    return gone.port not in ports and node.state == "ok"


def await_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise penstock.StoreUnavailable(f"waited {START_SECONDS} s for {what}")
        time.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as found_port:
        found_port.bind((LOOPBACK, 0))
        port: int = found_port.getsockname()[1]
    return port
