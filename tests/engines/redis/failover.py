"""A primary, a replica and a sentinel, each a process of its own on a port of its own."""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import redis

import penstock
from tests.engines.redis.server import PATIENCE_SECONDS, RedisServer, program
from tests.faults.processes import await_until
from tests.ports import LOOPBACK, free_port

SERVICE = "shop"
WRITTEN = ("--save", "", "--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0")


class ReplicatedServer:
    """The sentinel fails over when it is asked to, so that a slow machine does not."""

    def __init__(self) -> None:
        self.ports = free_port(), free_port()
        self.sentinel_port = free_port()
        self.primary = RedisServer(*WRITTEN, "--port", str(self.ports[0]))
        self.replica = RedisServer(*WRITTEN, "--port", str(self.ports[1]), "--replicaof", LOOPBACK, str(self.ports[0]))
        self._resources = ExitStack()

    @property
    def url(self) -> str:
        return f"redis+sentinel://{LOOPBACK}:{self.sentinel_port}/{SERVICE}/0"

    def __enter__(self) -> ReplicatedServer:
        with self._resources as resources:
            resources.enter_context(self.primary)
            resources.enter_context(self.replica)
            folder = resources.enter_context(tempfile.TemporaryDirectory(prefix="sentinel-"))
            self._settings = self._write_settings(Path(folder))
            with redis.Redis(unix_socket_path=str(self.replica.socket)) as client:
                await_until(lambda: client.info("replication")["master_link_status"] == "up")
            self._start_sentinel()
            resources.callback(self._stop_sentinel)
            with penstock.connect(self.url) as store:
                store.migrate()
            self._resources = resources.pop_all()
        return self

    def _write_settings(self, folder: Path) -> Path:
        settings = folder / "sentinel.conf"
        settings.write_text(
            f"port {self.sentinel_port}\nbind {LOOPBACK}\ndir {folder}\nlogfile {folder}/log\n"
            f"sentinel monitor {SERVICE} {LOOPBACK} {self.ports[0]} 1\n"
            f"sentinel down-after-milliseconds {SERVICE} 600000\n"
            f"sentinel failover-timeout {SERVICE} 60000\n"
        )
        return settings

    def _start_sentinel(self) -> None:
        """The sentinel keeps what it knows in the file of its settings."""
        self._watcher = subprocess.Popen([program(), str(self._settings), "--sentinel"])
        await_until(self._knows_replica)

    def _stop_sentinel(self) -> None:
        self._watcher.kill()
        self._watcher.wait(PATIENCE_SECONDS)

    def _sentinel(self) -> redis.Redis:
        return redis.Redis(LOOPBACK, self.sentinel_port, decode_responses=True)

    def _knows_replica(self) -> bool:
        try:
            with self._sentinel() as sentinel:
                return bool(sentinel.sentinel_slaves(SERVICE))
        except redis.exceptions.ConnectionError:
            return False

    def fail_over(self) -> None:
        """Have the sentinel promote the replica, and wait until it has."""
        with self._sentinel() as sentinel:
            await_until(lambda: _is_accepted(sentinel))
            await_until(lambda: sentinel.sentinel_get_master_addr_by_name(SERVICE) == (LOOPBACK, self.ports[1]))

    def detach_replica(self) -> None:
        """Cut the replica off. The sentinel, which would connect it again, is away meanwhile."""
        self._stop_sentinel()
        with redis.Redis(unix_socket_path=str(self.replica.socket)) as client:
            client.replicaof(LOOPBACK, "1")

    def kill_primary(self) -> None:
        self.primary.kill()
        self._start_sentinel()

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._resources.close()


def _is_accepted(sentinel: redis.Redis) -> bool:
    """A sentinel refuses while it does not yet know that the replica is well."""
    try:
        sentinel.execute_command("SENTINEL", "FAILOVER", SERVICE)  # type: ignore[no-untyped-call]  # the library has no types here
    except redis.exceptions.ResponseError as error:
        return "INPROG" in str(error)
    return True
