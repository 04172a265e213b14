"""Server processes on free loopback ports: Penstock's, and Redis to compare it with."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.ports import LOOPBACK, free_port

# Generous, because the machine may be busy: a server that works is seen within a fraction of it.
READY_SECONDS = 60.0


class ServerProcess:
    """A server as a process of its own: started, watched, stopped or killed by its pid."""

    def __init__(self, words: Sequence[str], port: int, folder: Path, environment: Mapping[str, str]) -> None:
        self.words = words
        self.port = port
        self.log = folder / f"server-{port}.log"
        self.environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not started"
        return self._process.pid

    def start(self, answers: Callable[[], bool] | None = None) -> Self:
        """Returns when the server is ready: when it `answers`."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment
            )
        self._await_ready(answers or self._answers)
        return self

    def _await_ready(self, answers: Callable[[], bool]) -> None:
        gives_up_at = time.monotonic() + READY_SECONDS
        while not answers():
            assert self.is_alive(), f"the server ended while starting:\n{self.said()}"
            assert time.monotonic() < gives_up_at, f"the server does not answer:\n{self.said()}"
            # There is no signal to wait for: a port that is not open yet refuses at once.
            time.sleep(0.02)

    def _answers(self) -> bool:
        """A connection alone may only have reached the kernel's backlog."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=READY_SECONDS) as link:
                link.sendall(b"PING\r\n")
                return link.recv(1) in (b"+", b"-")  # -NOAUTH is an answer too
        except OSError:
            return False

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-8000:]

    def stop(self, seconds: float = 20.0) -> int:
        """Politely; the exit code."""
        assert self._process is not None
        if self.is_alive():
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the server did not stop within {seconds} s:\n{self.said()}") from None

    def kill(self) -> None:
        """At once, with no chance to say or save anything."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def rss_bytes(self) -> int:
        """What the process holds in memory now."""
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the kernel does not tell the memory of the process")

    def cpu_seconds(self) -> float:
        """What the process has used of a core so far."""
        # The name in the second field may hold spaces: count from the bracket that closes it.
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_alive():
            self.stop()


class PenstockServer(ServerProcess):
    """`penstock serve`, on a SQLite store unless told otherwise."""

    def __init__(
        self,
        folder: Path,
        *words: str,
        url: str | None = None,
        port: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        port = port or free_port()
        folder.mkdir(exist_ok=True)
        self.path = folder / "store.db"
        self.url = url or f"sqlite:///{self.path}"
        command = [sys.executable, "-c", "import sys; from penstock.cli import main; sys.exit(main())", "serve", *words]
        settings = {
            "PENSTOCK_URL": self.url,
            "PENSTOCK_RESP_PORT": str(port),
            "PENSTOCK_HTTP_ENABLED": "false",
            **(environment or {}),
        }
        super().__init__(command, port, folder, settings)


class RedisServer(ServerProcess):
    """Debian's redis-server. With `durable`, every write is on the disk before it is answered."""

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        port = free_port()
        program = shutil.which("redis-server")
        assert program is not None, "redis-server is not installed"
        persistence = ["--appendonly", "yes", "--appendfsync", "always"] if durable else ["--appendonly", "no"]
        words = [program, "--bind", LOOPBACK, "--port", str(port), "--dir", str(folder), "--save", "", *persistence]
        super().__init__(words, port, folder, {})
