"""A process forked from a server that has imported Penstock: it starts in milliseconds, not in tenths of a second.

It is a real process with a pid of its own that can be killed, stopped and continued. The server is started by the first
one and has neither threads nor open stores.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import subprocess
import sys
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path

PRELOADED = (
    "penstock.engines.postgres",
    "penstock.engines.sqlite",
    "tests.faults.actor",
    "tests.faults.concurrent_call",
    "tests.faults.fast_sweeper",
    "tests.faults.skewed_sweeper",
    "tests.faults.worker_process",
)
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(list(PRELOADED))


class ForkedProcess:
    """Runs `main(*arguments)` of a module, as `python -m` would; has what tests use of `subprocess.Popen`."""

    def __init__(self, module: str, arguments: tuple[str, ...], errors: Path) -> None:
        child_input, own_input = _context.Pipe(duplex=False)
        own_output, child_output = _context.Pipe(duplex=False)
        self._process = _context.Process(target=_run, args=(module, arguments, child_input, child_output, errors))
        self._process.start()
        self.args = (module, *arguments)
        self.stdin = os.fdopen(os.dup(own_input.fileno()), "w")
        self.stdout = os.fdopen(os.dup(own_output.fileno()))
        for end in (child_input, own_input, own_output, child_output):
            end.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def communicate(self, timeout: float) -> str:
        """End its input, wait for its end, and return what it still wrote to standard output: a few lines at most."""
        if not self.stdin.closed:
            self.stdin.close()
        self.wait(timeout)
        return self.stdout.read()


def _run(module: str, arguments: tuple[str, ...], input: Connection, output: Connection, errors: Path) -> None:
    os.dup2(input.fileno(), 0)
    os.dup2(output.fileno(), 1)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
    input.close()
    output.close()
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115  # as long as it runs
    faulthandler.enable()
    import_module(module).main(*arguments)
    sys.stdout.flush()
