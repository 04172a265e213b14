"""`penstock serve` as a process of the run, on loopback, with a proxy in front of each of its ports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from socket import create_connection

import penstock
from penstock.chaos.proxy import LOOPBACK, Proxy, free_port

START_SECONDS = 300
# The server does not start while its store is unavailable.
AWAY_SECONDS = 30


class ServeProcess:
    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._ports = (free_port(), free_port())
        self.proxies = tuple(Proxy((LOOPBACK, port)) for port in self._ports)
        self._process = self._start()
        try:
            self._await_ready()
        except BaseException:
            self.close()
            raise

    @property
    def resp_url(self) -> str:
        return f"redis://{LOOPBACK}:{self.proxies[0].port}"

    @property
    def http_url(self) -> str:
        return f"http://{LOOPBACK}:{self.proxies[1].port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def restart(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Kill the server and start another one on the same ports, without waiting for it."""
        self._kill()
        meanwhile()
        self._process = self._start()

    def ensure(self) -> str | None:
        """Restart the server if it exited by itself, and report the end of its log. An exit soon after the start is no
        problem: its store may be unavailable."""
        if self._process.poll() is None:
            return None
        if time.monotonic() - self._began < AWAY_SECONDS:
            self._process = self._start()
            return None
        code = self._process.returncode
        said = (self._folder / "serve.err").read_text(errors="replace")[-1500:]
        self._process = self._start()
        return f"penstock serve ended with {code}: {said}"

    def close(self) -> None:
        self._kill()
        for proxy in self.proxies:
            proxy.close()

    def _start(self) -> subprocess.Popen[bytes]:
        self._began = time.monotonic()
        resp, http = (str(port) for port in self._ports)
        words = [sys.executable, "-m", "penstock", "serve", "--url", self._url]
        words += ["--resp-port", resp, "--http-port", http]
        with (self._folder / "serve.err").open("ab") as errors:
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)

    def _await_ready(self) -> None:
        ends = time.monotonic() + START_SECONDS
        while True:
            try:
                for port in self._ports:
                    create_connection((LOOPBACK, port), 1).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > ends:
                    said = (self._folder / "serve.err").read_text(errors="replace")[-1500:]
                    raise penstock.StoreUnavailable(f"penstock serve did not start: {said}") from None
                time.sleep(0.05)

    def _kill(self) -> None:
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
