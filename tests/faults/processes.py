"""Real processes on one store: started, killed and stopped by their own pid, and a look at what they left behind."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import TracebackType

import msgspec

import penstock
from penstock.domain.validation import from_time
from tests.conformance.engines import EngineRow
from tests.faults import history
from tests.faults.actor import READY
from tests.faults.checker import Dump, Entry, Fate
from tests.faults.forked_process import ForkedProcess

ALL = 1_000_000
# Far longer than it takes, also on a machine that has much else to do.
END_SECONDS = 60


class Processes:
    """The processes of one test; whatever is left of them ends with the `with` block."""

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

    def start(self, role: str, queue: str = "work") -> ForkedProcess:
        number = next(self._numbers)
        path = self.histories / f"{role}-{number}.jsonl"
        return self.run("tests.faults.actor", role, self.url, str(path), str(self.seed * 1000 + number), queue)

    def run(self, module: str, *arguments: str) -> ForkedProcess:
        # Standard error goes to a file: nobody reads a pipe while the members run, and one that is full stops them.
        member = ForkedProcess(module, arguments, self._said / str(len(self._members)))
        self._members.append(member)
        return member

    def said(self, member: ForkedProcess | None = None) -> str:
        """What a member, or each of them, wrote to standard error: for the message of an assertion."""
        if member is not None:
            path = self._said / str(self._members.index(member))
            return path.read_text() if path.exists() else ""
        every = enumerate(self._members, 1)
        return "\n".join(f"process {number}:\n{said}" for number, one in every if (said := self.said(one)))

    def kill(self, member: ForkedProcess) -> None:
        """At once, with no chance to say anything."""
        os.kill(member.pid, signal.SIGKILL)
        member.wait()
        self.kills += 1

    def terminate(self, member: ForkedProcess) -> None:
        """Politely: it may finish what it has begun."""
        os.kill(member.pid, signal.SIGTERM)

    def freeze(self, member: ForkedProcess) -> None:
        os.kill(member.pid, signal.SIGSTOP)

    def thaw(self, member: ForkedProcess) -> None:
        os.kill(member.pid, signal.SIGCONT)

    def finish(self, member: ForkedProcess) -> None:
        """Politely: its standard input ends. A member that failed by itself fails the test, with what it said."""
        self.await_end(member, -signal.SIGKILL)

    def await_end(self, member: ForkedProcess, *allowed: int) -> None:
        """One that does not end says what its threads are doing."""
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
    """The moment a thing that other processes bring about has come."""
    ends = time.monotonic() + within_seconds
    while not true():
        assert time.monotonic() < ends, "it did not happen in time"
        time.sleep(0.02)


def drain(store: penstock.Store, queue: str, groups: tuple[str, ...], within_seconds: float = END_SECONDS) -> None:
    """Take everything out that is left: ack it, and nak poison until it is dead."""
    orders = store.queue(queue)
    ends = time.monotonic() + within_seconds
    while any(_is_live(orders.stats(group)) for group in groups if group in orders.stats()):
        assert time.monotonic() < ends, f"did not drain: {orders.stats()}"
        for group in groups:
            got = orders.receive(limit=1000, group=group, wait_seconds=0.05)
            orders.settle([_last_word(delivery, is_primary=group == groups[0]) for delivery in got])
        store.sweep()


def _last_word(delivery: penstock.Delivery, is_primary: bool) -> penstock.Ack | penstock.Nak:
    if delivery.payload.startswith(b"poison") and is_primary:
        return penstock.Nak(delivery, "poison", 0)
    return penstock.Ack(delivery)


def _is_live(stats: penstock.GroupStats) -> bool:
    return stats.held + stats.available + stats.redo + stats.in_progress > 0


def dump(store: penstock.Store, queue: str, groups: tuple[str, ...] = ("default",)) -> Dump:
    """What the public surface tells of every message, after the drain."""
    orders = store.queue(queue)
    fates: dict[str, Fate] = {}
    for archived in orders.archive(limit=ALL):
        fates[archived.message.id] = Fate(archived.message.payload.decode(), _trail(orders, archived.message.id))
    for letter in orders.dead_letters(limit=ALL, group=groups[0]):
        fate = fates.setdefault(letter.id, Fate(letter.payload.decode(), _trail(orders, letter.id)))
        fate.letters += 1
    stats = {group: msgspec.to_builtins(one) for group, one in orders.stats().items() if group in groups}
    return Dump(fates, stats, max_retries=orders.policy().max_retries, groups=groups)


def _trail(orders: penstock.Queue, message_id: str) -> list[Entry]:
    return [
        Entry(_micro(entry.at), str(entry.event), str(entry.state), entry.group, entry.attempt, entry.by)
        for entry in orders.audit(message_id)
    ]


def _micro(at: datetime) -> int:
    return from_time("at", at)


def read_history(processes: Processes, queue: str) -> list[history.Step]:
    return [step for step in history.read(processes.histories) if step.get("queue") == queue]
