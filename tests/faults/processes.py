"""Real processes on one store: started, killed and stopped by their own pid."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from tests.conformance.engines import EngineRow
from tests.faults.actor import READY
from tests.faults.forked_process import ForkedProcess

# Much longer than needed, for busy machines.
END_SECONDS = 60


class Processes:
    """The processes of one test, which end with the `with` block."""

    def __init__(self, folder: Path, seed: int, engine: EngineRow) -> None:
        self.folder = folder
        self.engine = engine
        self.url = engine.fresh_url(folder)
        self.histories = folder / "histories"
        self.histories.mkdir()
        self.seed = seed
        self.kills = 0
        self._numbers = itertools.count(1)
        self._members: list[ForkedProcess] = []
        self._said = folder / "said"
        self._said.mkdir()

    def start(self, role: str) -> ForkedProcess:
        number = next(self._numbers)
        seed = str(self.seed * 1000 + number)
        return self.run("tests.faults.actor", role, self.url, str(self.histories), f"{role}-{number}", seed)

    def start_worker(self) -> ForkedProcess:
        name = f"worker-{next(self._numbers)}"
        return self.run("tests.faults.worker_process", self.url, str(self.histories), name)

    def run(self, module: str, *arguments: str) -> ForkedProcess:
        # Standard error goes to a file: a full pipe that nobody reads would block the processes.
        member = ForkedProcess(module, arguments, self._said / str(len(self._members)))
        self._members.append(member)
        return member

    def said(self, member: ForkedProcess | None = None) -> str:
        """The standard error of one or all processes, for assertion messages."""
        if member is not None:
            path = self._said / str(self._members.index(member))
            return path.read_text() if path.exists() else ""
        every = enumerate(self._members, 1)
        return "\n".join(f"process {number}:\n{said}" for number, one in every if (said := self.said(one)))

    def kill(self, member: ForkedProcess) -> None:
        """Kill at once (SIGKILL)."""
        os.kill(member.pid, signal.SIGKILL)
        member.wait()
        self.kills += 1

    def terminate(self, member: ForkedProcess) -> None:
        """Terminate gracefully: it may finish its work."""
        os.kill(member.pid, signal.SIGTERM)

    def freeze(self, member: ForkedProcess) -> None:
        os.kill(member.pid, signal.SIGSTOP)

    def thaw(self, member: ForkedProcess) -> None:
        os.kill(member.pid, signal.SIGCONT)

    def finish(self, member: ForkedProcess) -> None:
        """Stop gracefully by closing its standard input. A process that failed fails the test, with its output."""
        self.await_end(member, -signal.SIGKILL)

    def await_end(self, member: ForkedProcess, *allowed: int) -> None:
        """Dump the stacks of a process that does not end."""
        try:
            member.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            os.kill(member.pid, signal.SIGABRT)
            member.wait()
            raise AssertionError(f"a process did not end:\n{self.said(member)}") from None
        code = member.returncode
        assert code in (0, *allowed), f"a process ended with {code}:\n{self.said(member)}"

    def finish_all(self) -> None:
        for member in self._members:
            if not member.stdin.closed:
                self.finish(member)

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self._members:
            if member.poll() is None:
                os.kill(member.pid, signal.SIGKILL)
            member.wait()
            for pipe in (member.stdin, member.stdout):
                pipe.close()


def await_ready(member: ForkedProcess) -> None:
    line = member.stdout.readline()
    assert line == READY, f"a process did not start: {line!r}"


def await_until(true: Callable[[], bool], within_seconds: float = END_SECONDS) -> None:
    """Wait for a condition that other processes bring about."""
    ends = time.monotonic() + within_seconds
    while not true():
        assert time.monotonic() < ends, "it did not happen in time"
        time.sleep(0.02)
