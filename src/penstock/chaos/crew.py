"""The processes of a run: started, killed, frozen and stopped by their own ids."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.chaos.history import SUFFIX
from penstock.chaos.plan import ActorPlan

# A process may need minutes to start on a busy machine, and must have started to end.
END_SECONDS = 300


@dataclass
class Member:
    """A position in the crew and the process that currently fills it."""

    plan: ActorPlan
    process: subprocess.Popen[bytes]
    thaw_at: float | None = None


class Crew:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.members: list[Member] = []
        self._leaving: list[Member] = []
        self._generation = 0

    def start(self, plan: ActorPlan) -> None:
        self.members.append(Member(plan, self._run(plan)))

    def _run(self, plan: ActorPlan) -> subprocess.Popen[bytes]:
        self._generation += 1
        named = replace(plan, process=f"{plan.process}-{self._generation}", seed=plan.seed + self._generation)
        words = [sys.executable, "-m", "penstock.chaos.actor", named.encoded()]
        # Into a file: nobody reads a pipe during the run, and a full one would block the process.
        with (self.folder / f"{named.process}.err").open("wb") as errors:
            return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors)

    def await_begin(self, histories: Path, within_seconds: float = END_SECONDS) -> None:
        """Wait until every process has begun its history: Python starts slowly on a busy machine."""
        ends = time.monotonic() + within_seconds
        while len(list(histories.glob(f"*{SUFFIX}"))) <= len(self.members) and time.monotonic() < ends:
            time.sleep(0.05)

    def kill(self, member: Member) -> None:
        """Kill the process and start its replacement."""
        self._end(member)
        member.process = self._run(member.plan)
        member.thaw_at = None

    def restart_all(self, meanwhile: Callable[[], None]) -> None:
        """Kill all processes, call `meanwhile` while none runs, and start their replacements."""
        for member in [*self.members, *self._leaving]:
            self._end(member)
        self._leaving = []
        meanwhile()
        for member in self.members:
            member.process = self._run(member.plan)
            member.thaw_at = None

    def retire(self, member: Member) -> None:
        """Let the process stop by itself, and start its replacement immediately."""
        assert member.process.stdin is not None
        member.process.stdin.close()
        self._leaving.append(Member(member.plan, member.process))
        member.process = self._run(member.plan)

    def freeze(self, member: Member, seconds: float) -> None:
        os.kill(member.process.pid, signal.SIGSTOP)
        member.thaw_at = time.monotonic() + seconds

    def thaw_due(self, everybody: bool = False) -> None:
        for member in self.members:
            if member.thaw_at is not None and (everybody or member.thaw_at < time.monotonic()):
                os.kill(member.process.pid, signal.SIGCONT)
                member.thaw_at = None

    def failures(self) -> list[str]:
        """Report processes that exited by themselves, with their error output; they are replaced, so each is reported
        once."""
        found = []
        for member in self.members:
            code = member.process.poll()
            if code is not None:
                found.append(f"{member.plan.role} ({member.plan.protocol}) ended with {code}: {self._said(member)}")
                member.process = self._run(member.plan)
        return found

    def _said(self, member: Member) -> str:
        newest = max(self.folder.glob(f"{member.plan.process}-*.err"), key=lambda path: path.stat().st_mtime)
        return newest.read_text(errors="replace")[-6000:]

    def stop(self, *roles: str) -> list[str]:
        """Close the input of these roles and wait for them; returns those that failed or did not stop."""
        chosen = [member for member in self.members if member.plan.role in roles]
        for member in chosen:
            assert member.process.stdin is not None
            member.process.stdin.close()
        problems = []
        ends = time.monotonic() + END_SECONDS
        leaving, self._leaving = self._leaving, []
        for member in [*leaving, *chosen]:
            try:
                code = member.process.wait(max(0.1, ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.kill(member.process.pid, signal.SIGABRT)
                member.process.wait()
                code = -signal.SIGABRT
            if code not in (0, -signal.SIGTERM):
                problems.append(f"{member.plan.role} ({member.plan.protocol}) ended with {code}: {self._said(member)}")
        self.members = [member for member in self.members if member not in chosen]
        return problems

    def close(self) -> None:
        for member in [*self.members, *self._leaving]:
            self._end(member)
        self.members, self._leaving = [], []

    def _end(self, member: Member) -> None:
        if member.process.poll() is None:
            os.kill(member.process.pid, signal.SIGKILL)
        member.process.wait()
        if member.process.stdin is not None:
            member.process.stdin.close()
