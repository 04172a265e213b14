"""A real cluster on loopback: Spark's own master and workers as processes, and drivers that can be killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

ROOT = Path(__file__).resolve().parents[2]
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
PATIENCE_SECONDS = 180


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    ends = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < ends, f"waited too long for {what}"
        time.sleep(0.05)  # other processes are looked at from outside: there is no signal to wait for
    return found


class Driver:
    """A process that runs one job of `tests.spark.driving`."""

    def __init__(self, master: str, log: Path, words: list[str]) -> None:
        self.log = log
        with log.open("ab") as out:
            command = [sys.executable, "-m", "tests.spark.driving", master, *words]
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, start_new_session=True)

    def finish(self) -> None:
        code = self.process.wait(PATIENCE_SECONDS)
        assert code == 0, self.log.read_text()

    def kill(self) -> None:
        """The driver's Python and its Java, at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None


class Cluster:
    def __init__(self, folder: Path, workers: int) -> None:
        self.folder = folder
        self.port, self.page_port = free_port(), free_port()
        self.master = f"spark://127.0.0.1:{self.port}"
        self.worker_ports = [free_port() for _ in range(workers)]
        self.processes: list[subprocess.Popen[bytes]] = []
        self.drivers: list[Driver] = []

    def start(self) -> None:
        self._run("master.Master", "--port", str(self.port), "--webui-port", str(self.page_port))
        wait_for(lambda: self.state() is not None, "the master")
        for port in self.worker_ports:
            place = str(self.folder / f"work-{port}")
            ports = ("--port", str(port), "--webui-port", "0")
            self._run("worker.Worker", *ports, "--cores", "1", "--memory", "600m", "--work-dir", place, self.master)
        wait_for(lambda: (self.state() or {}).get("aliveworkers") == len(self.worker_ports), "the workers")

    def _run(self, name: str, *words: str) -> None:
        command = [str(SPARK_CLASS), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", *words]
        environment = {**os.environ, "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1"}
        with (self.folder / "daemons.log").open("ab") as out:
            started = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=out, stderr=out)
        self.processes.append(started)

    def state(self) -> dict[str, Any] | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.page_port}/json/", timeout=5) as page:
                found: dict[str, Any] = json.load(page)
                return found
        except OSError:
            return None

    def drive(self, *words: str) -> Driver:
        driver = Driver(self.master, self.folder / "driver.log", list(words))
        self.drivers.append(driver)
        return driver

    def executors(self) -> list[int]:
        """The processes in which our own workers run tasks."""
        ours = {f"@127.0.0.1:{port}" for port in self.worker_ports}
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                except OSError:  # it has just ended
                    continue
                if any("CoarseGrainedExecutorBackend" in word for word in words) and any(
                    place in word for word in words for place in ours
                ):
                    found.append(int(entry.name))
        return sorted(found)

    def kill_executor(self) -> None:
        victim = wait_for(self.executors, "an executor")[0]
        os.kill(victim, signal.SIGKILL)

    def stop(self) -> None:
        for driver in self.drivers:
            if driver.is_running:
                driver.kill()
        for process in reversed(self.processes):
            process.kill()
            process.wait()
        for left in self.executors():
            os.kill(left, signal.SIGKILL)


@contextmanager
def running_cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    cluster = Cluster(folder, workers)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
