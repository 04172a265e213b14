"""A real cluster on loopback: Spark's own master and workers as processes, and drivers that can be killed."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
PATIENCE_SECONDS = 500


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    ends = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < ends, f"waited too long for {what}"
        time.sleep(0.01)  # poll interval for other processes, which send no signal
    return found


class Driver:
    """A process that runs jobs of `tests.spark.cluster_jobs`, one after the other."""

    def __init__(self, master: str, log: Path) -> None:
        self.log = log
        self.is_idle = True
        with log.open("ab") as errors:
            command = [sys.executable, "-m", "tests.spark.cluster_jobs", master]
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                start_new_session=True,
            )

    def begin(self, *words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words).encode() + b"\n")
        self.is_idle = False

    def finish(self) -> None:
        """Wait until the job is done. The driver keeps running for the next one."""
        answers = self.process.stdout
        assert answers is not None
        assert select.select([answers], [], [], PATIENCE_SECONDS)[0], self.log.read_text()
        assert answers.readline() == b"done\n", self.log.read_text()
        self.is_idle = True

    def freeze(self) -> None:
        """Stop handing out tasks."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.killpg(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the driver's Python and Java processes."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()
        self.is_idle = False

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
        except (OSError, json.JSONDecodeError):  # it does not listen yet, or has only its first page
            return None

    def drive(self, *words: str) -> Driver:
        """Start a job on the idle driver, or on a new one."""
        idle = [driver for driver in self.drivers if driver.is_idle]
        driver = idle[0] if idle else Driver(self.master, self.folder / "driver.log")
        if not idle:
            self.drivers.append(driver)
        driver.begin(*words)
        return driver

    def executors(self) -> list[int]:
        """The Python worker processes of the executors."""
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
