"""The processes of one contender, and their rates."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.tally import FIRST_SENDER, FIRST_TAKER, Tally

# A sender pauses while this many messages wait, so that all contenders work near an empty queue unless there is a
# backlog.
MOST_WAITING = 20_000
READY_SECONDS = 60.0
END_SECONDS = 60.0


class Stuck(Exception):
    """No progress: fail instead of reporting a rate of zero."""


class Crew:
    def __init__(self, name: str, tally: Tally) -> None:
        self.name = name
        self.tally = tally

    def wait_for(self, *, sent: int = 0, taken: int = 0) -> None:
        ends = time.monotonic() + READY_SECONDS
        while self.tally.sent < sent or self.tally.taken < taken:
            if time.monotonic() > ends:
                raise Stuck(f"{self.name}: {self.tally.sent} sent and {self.tally.taken} taken in {READY_SECONDS:g} s")
            time.sleep(0.005)

    def rates(self, seconds: float, of: str = "taken", every: float | None = None) -> list[float]:
        """Messages per second, over the whole time or in steps."""
        step = every or seconds
        samples = []
        before, began = getattr(self.tally, of), time.perf_counter()
        ends = began + seconds
        while began < ends - step / 2:
            time.sleep(max(0, min(step, ends - time.perf_counter())))
            now, at = getattr(self.tally, of), time.perf_counter()
            samples.append((now - before) / (at - began))
            before, began = now, at
        return samples

    def rate_until_dry(self, count: int, seconds: float) -> float:
        """The rate of receiving this many messages, or as many as the time allows."""
        before, began = self.tally.taken, time.perf_counter()
        while self.tally.taken < count and time.perf_counter() - began < seconds:
            time.sleep(0.002)
        return (self.tally.taken - before) / (time.perf_counter() - began)


@contextmanager
def at_work(
    name: str, program: Sequence[str], url: str, batch: int, senders: int = 2, takers: int = 2,
    most_waiting: int = MOST_WAITING,
) -> Iterator[Crew]:  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        tally = Tally(Path(folder) / "tally")
        slots = [("send", FIRST_SENDER + place) for place in range(senders)]
        slots += [("take", FIRST_TAKER + place) for place in range(takers)]
        processes = [
            subprocess.Popen([*program, name, role, url, str(tally.path), str(slot), str(batch), str(most_waiting)])
            for role, slot in slots
        ]
        try:
            yield Crew(name, tally)
        finally:
            tally.stop()
            for process in processes:
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
