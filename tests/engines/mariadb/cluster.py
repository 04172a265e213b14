"""Three MariaDB servers as a Galera cluster on loopback, killed by id and started again.

The nodes begin with copies of one data directory, and a killed node recovers its own. So a node fetches only the
transactions that it lacks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import penstock
from tests.engines.mariadb.server import IS_MYSQL, USER, MariadbServer
from tests.ports import LOOPBACK, free_port

PROVIDER = "/usr/lib/galera/libgalera_smm.so"
DATABASE = "app"
NODES = 3
SETTINGS = {
    "binlog_format": "ROW",
    "innodb_autoinc_lock_mode": "2",
    "innodb_buffer_pool_size": "32M",
    "wsrep_on": "ON",
    "wsrep_provider": PROVIDER,
    "wsrep_cluster_name": "penstock",
}
# Galera sometimes sets the priority of a thread that is not there yet, and gives up.
THREAD_RACE = "Failed to set thread schedparams"
TRIES = 10
NEW_CLUSTER = "--wsrep-new-cluster"
_POSITION = re.compile(r"WSREP: Recovered position: (\S+:-?\d+)")


class GaleraNode(MariadbServer):
    starts_alone = False

    def __init__(self, folder: Path, group_port: int, group: list[int]) -> None:
        members = ",".join(f"{LOOPBACK}:{member}" for member in group)
        # Nodes of a busy machine are not taken for dead before ten seconds.
        options = {
            "gmcast.listen_addr": f"tcp://{LOOPBACK}:{group_port}",
            "ist.recv_addr": f"{LOOPBACK}:{free_port()}",
            "gcache.size": "32M",
            "evs.suspect_timeout": "PT10S",
            "evs.inactive_timeout": "PT30S",
        }
        settings = {
            **SETTINGS,
            "wsrep_cluster_address": f"gcomm://{members}",
            "wsrep_node_address": f"{LOOPBACK}:{group_port}",
            "wsrep_provider_options": ";".join(f"{name}={value}" for name, value in options.items()),
            "wsrep_sst_receive_address": f"{LOOPBACK}:{free_port()}",
        }
        super().__init__(folder, settings=settings, port=free_port())

    def start(self, *words: str) -> None:
        chosen = words or [] if self._was_stopped() else [f"--wsrep-start-position={self._last_position()}"]
        for tries in range(TRIES):
            try:
                super().start(*chosen)
            except RuntimeError as error:
                if THREAD_RACE not in str(error) or tries + 1 == TRIES:
                    raise
            else:
                break
        self.await_status("wsrep_ready", "ON")

    def _was_stopped(self) -> bool:
        """Whether the node was new or stopped in good order, so that it knows its last transaction."""
        state = self.data / "grastate.dat"
        return not state.exists() or "seqno:   -1" not in state.read_text()

    def _last_position(self) -> str:
        """The last transaction that the node has, read from its data."""
        done = subprocess.run([*self.command(), "--wsrep-recover"], capture_output=True, check=True, timeout=120)
        found: list[str] = _POSITION.findall(done.stderr.decode(errors="replace"))
        return found[-1]

    def await_status(self, name: str, value: str) -> None:
        ends = time.monotonic() + 120
        while (found := self._status(name)) != value:
            assert time.monotonic() < ends, f"{name} is {found}, not {value}"
            time.sleep(0.05)

    def set_provider_option(self, option: str) -> None:
        connection = self.connect()
        connection.query(f"set global wsrep_provider_options = '{option}'")
        connection.close()

    def _status(self, name: str) -> str:
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"show status like '{name}'")
                return str(cursor.fetchall()[0][1])
        finally:
            connection.close()


class GaleraCluster:
    """Started when it is made, with an empty store."""

    def __init__(self, folder: Path) -> None:
        if IS_MYSQL or not os.path.exists(PROVIDER):
            pytest.skip("galera-4 is not installed: `make databases` does that, as root on Debian")
        ports = [free_port() for _ in range(NODES)]
        folders = [folder / str(number) for number in range(NODES)]
        first = GaleraNode(folders[0], ports[0], ports)
        self.nodes = [first]
        try:
            first.start(NEW_CLUSTER)
            first.stop()
            for copy, port in zip(folders[1:], ports[1:], strict=True):
                subprocess.run(["cp", "--archive", first.folder, copy], check=True)
                self.nodes.append(GaleraNode(copy, port, ports))
            first.start(NEW_CLUSTER)
            with ThreadPoolExecutor() as threads:
                list(threads.map(GaleraNode.start, self.nodes[1:]))
            self._make_store()
        except BaseException:
            self.remove()
            raise

    def url(self, *order: int) -> str:
        """The nodes as hosts, in an order: a client uses the first one that answers."""
        hosts = [f"{LOOPBACK}:{self.nodes[number].port}" for number in order or range(NODES)]
        return f"mariadb://{USER}@{','.join(hosts)}/{DATABASE}"

    def kill(self, number: int) -> None:
        self.nodes[number].stop(signal.SIGKILL)

    @contextmanager
    def cut_off(self, number: int) -> Iterator[None]:
        """While the block runs, the node and the others do not see each other."""
        node = self.nodes[number]
        node.set_provider_option("gmcast.isolate=1")
        node.await_status("wsrep_ready", "OFF")
        yield
        node.set_provider_option("gmcast.isolate=0")
        node.await_status("wsrep_ready", "ON")

    def remove(self) -> None:
        for node in self.nodes:
            node.remove()

    def _make_store(self) -> None:
        admin = self.nodes[0].connect()
        admin.query(f"create database {DATABASE}")
        admin.close()
        with penstock.connect(self.url(0)) as store:
            store.migrate()
