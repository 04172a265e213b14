"""Full and failing disks: every call is atomic, and the store works again when the disk does."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

import penstock
from penstock import StoreError, StoreFull
from tests.conformance.clock import Clock
from tests.engines.sqlite.template import fresh_store
from tests.faults.failing_disk import Disk, failing_disk
from tests.faults.verb_calls import CALLS, PIECEWISE, drain, prepare, seen, uncut

ROOM = 1_500_000


# -- no room -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of one and a half megabytes, where this machine lets us mount one."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("this machine lets nobody mount a file system; the failing disk below stands in for it")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_refuses_sends_and_recovers(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with penstock.connect(f"sqlite:///{small_disk}/store.db") as store:
        queue = store.queue("work")
        ballast.write_bytes(bytes(400_000))
        sent = fill(queue)
        assert still_right(queue, sent)
        ballast.unlink()
        sent += 1
        queue.send(bytes(1000))
        assert still_right(queue, sent)
        assert len(queue.receive(limit=100_000)) == sent


def fill(queue: penstock.Queue) -> int:
    """Send until there is no room; counts the messages whose send returned."""
    for sent in range(0, 100_000, 10):
        try:
            queue.send_many([bytes(1000)] * 10)
        except StoreFull as error:
            return sent if "store.db" in str(error) else pytest.fail(f"does not name the store: {error}")
    pytest.fail("the small disk never filled up")


def still_right(queue: penstock.Queue, sent: int) -> bool:
    stats = queue.stats("default")
    return (stats.total, stats.available) == (sent, sent)


def test_a_disk_without_room_refuses_every_verb_and_recovers(tmp_path: Path) -> None:
    with failing_disk() as disk, penstock.connect(f"sqlite:///{tmp_path}/store.db") as store:
        queue = store.queue("work")
        ids = queue.send_many([b"1", b"2", b"3"])
        delivery = queue.receive()[0]
        before = look(queue, ids)
        for verb in verbs(store, queue, delivery):
            disk.arm(full=True)
            with pytest.raises(StoreFull, match=r"store\.db"):
                verb()
            disk.arm()
            assert look(queue, ids) == before
        delivery.ack()
        assert [one.payload for one in queue.receive(limit=10)] == [b"2", b"3"]


def verbs(store: penstock.Store, queue: penstock.Queue, delivery: penstock.Delivery) -> list[Callable[[], object]]:
    return [
        lambda: queue.send(b"4"),
        lambda: queue.send_many([b"4", b"5"]),
        lambda: queue.receive(limit=2),
        delivery.ack,
        lambda: delivery.nak("why"),
        lambda: delivery.extend(60),
        lambda: queue.batch("b").send(b"4"),
        lambda: store.queue("work", max_retries=1),
        queue.flush,
    ]


def look(queue: penstock.Queue, ids: list[str]) -> object:
    """The observable state, for comparison: half-written data must not change it."""
    stats = {group: (one.total, one.available, one.in_progress, one.outcomes) for group, one in queue.stats().items()}
    trails = [[(entry.event, entry.state, entry.attempt) for entry in queue.audit(one)] for one in ids]
    return stats, trails, [one.payload for one in queue.peek(100)], queue.policy()


# -- every write and every sync fails once -----------------------------------------------------------------------------


@pytest.mark.parametrize("verb", CALLS)
def test_a_call_whose_nth_write_or_sync_fails_changes_nothing_and_works_when_repeated(
    tmp_path: Path, verb: str
) -> None:
    url, clock = fresh_store(tmp_path), Clock()
    with failing_disk() as disk, penstock.connect(url, clock=clock, random=Random(7).random) as store:
        scene, failures = prepare(store, clock), 0
        before = seen(store)
        while fails(disk, failures + 1, lambda: CALLS[verb](scene)):
            failures += 1
            assert verb in PIECEWISE or seen(store) == before, (
                f"{verb} failed at operation {failures}, and did something"
            )
        assert failures >= 1, f"{verb} wrote nothing"
        found = seen(store), drain(store, clock)
    assert found == uncut(verb), f"{verb} after {failures} failures"
    with penstock.connect(url, clock=clock) as store:
        assert all(check.level != "error" for check in store.doctor())


def fails(disk: Disk, fail_at: int, call: Callable[[], object]) -> bool:
    """Let the n-th write or sync of a call fail, and all after it; says whether the call failed."""
    disk.arm(fail_at=fail_at)
    try:
        call()
    except StoreError:
        return True
    finally:
        disk.arm()
    return False
