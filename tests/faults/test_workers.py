"""Workers that are killed: what they held is taken over, and an at_most_once message is not run again."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.chaos import history
from penstock.domain.validation import from_time
from tests.conformance.engines import ENGINES
from tests.faults.processes import END_SECONDS, Processes, await_until
from tests.faults.worker_process import HEARTBEAT_SECONDS, SWEEP_SECONDS


@pytest.fixture(params=ENGINES, ids=lambda row: row.name)
def processes(request: pytest.FixtureRequest, tmp_path: Path, seed: int) -> Iterator[Processes]:
    with Processes(tmp_path, seed, request.param) as processes:
        with penstock.connect(processes.url) as store:
            store.queue("work", max_retries=3)
            store.queue("once", max_retries=3, delivery="at_most_once")
        yield processes


def test_what_a_killed_worker_held_is_taken_over_after_two_heartbeats(processes: Processes) -> None:
    """Long before its lease would have ended."""
    with penstock.connect(processes.url) as store:
        queue = store.queue("work", lease_seconds=60)
        ids = queue.send_many([b"vanish", b"plain-1", b"plain-2"])
        first = processes.start_worker()
        first.wait(END_SECONDS)
        assert first.returncode == -signal.SIGKILL
        killed_at = time.time_ns() // 1000
        others = [processes.start_worker()]

        def is_taken_over() -> bool:
            # The message kills every worker that runs it, perhaps first in the other group; then the next one takes
            # over.
            if others[-1].poll() is not None:
                others.append(processes.start_worker())
            return bool(lease_ends(queue, ids))

        await_until(is_taken_over)
        ends = lease_ends(queue, ids)
    seconds = (min(ends) - killed_at) / 1_000_000
    bound = 2 * HEARTBEAT_SECONDS + SWEEP_SECONDS
    print(f"taken over {seconds:.2f} s after the kill; two heartbeats and a sweep are {bound:.2f} s")
    # The machine may be busy: this fails when takeover waits for the lease, not when a process starts slowly.
    assert seconds < bound + 10


def lease_ends(queue: penstock.Queue, ids: list[str]) -> list[int]:
    return [from_time("at", entry.at) for one in ids for entry in queue.audit(one) if entry.event == "lease_end"]


def test_an_at_most_once_message_whose_worker_was_killed_is_never_run_again(processes: Processes) -> None:
    with penstock.connect(processes.url) as store:
        queue = store.queue("once", lease_seconds=60)
        message = queue.send(b"vanish")
        first = processes.start_worker()
        first.wait(END_SECONDS)
        assert first.returncode == -signal.SIGKILL
        second = processes.start_worker()
        await_until(lambda: bool(queue.dead_letters()))
        (letter,) = queue.dead_letters()
        other = queue.send(b"once-1")
        await_until(lambda: str(queue.audit(other)[-1].event) != "receive" and len(queue.audit(other)) > 2)
        assert second.poll() is None, "it was run again"
    assert (letter.id, letter.outcome, letter.attempts) == (message, "lease_expired", 1)
    assert letter.reason is not None
    assert "is gone" in letter.reason
    events = history.read(processes.histories)
    runs = [event for event in events if event["op"] == "handle" and event["id"] == message]
    assert len(runs) == 1
