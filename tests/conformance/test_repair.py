"""repair: flaws found by doctor are repaired and not found again."""

from __future__ import annotations

import pytest

from penstock import InvalidInput, Queue, Store
from tests.conformance.assertions import payloads, take, take_all
from tests.conformance.clock import Clock


def named(store: Store, name: str) -> list[str]:
    return [check.finding for check in store.doctor() if check.name == name and check.level != "ok"]


@pytest.fixture
def stranded(queue: Queue, clock: Clock) -> Queue:
    """A finished batch, and a later message with its name."""
    batch = queue.batch("nightly")
    batch.send("member")
    batch.start()
    take(queue).ack()
    clock.advance(seconds=1)
    queue.batch("nightly").send("late")
    return queue


def test_a_sound_store_needs_no_repair(queue: Queue, store: Store, clock: Clock) -> None:
    queue.send_many([1, 2])
    queue.batch("filled").send(3)
    queue.ack_many(take_all(queue))
    clock.advance(seconds=700)
    assert store.repair() == []


def test_a_batch_that_is_being_filled_again_is_left_alone(stranded: Queue, store: Store, clock: Clock) -> None:
    clock.advance(seconds=400)
    stranded.batch("nightly").send("another")
    clock.advance(seconds=400)
    assert named(store, "stranded batches") == []
    assert store.repair(batches="start") == []


def test_a_stranded_batch_is_told_and_left_to_a_decision(stranded: Queue, store: Store, clock: Clock) -> None:
    clock.advance(seconds=700)
    [finding] = named(store, "stranded batches")
    assert "nightly" in finding
    for repairs in (store.repair(), store.repair(dry_run=True, batches="start")):
        assert [(one.name, one.done) for one in repairs] == [("stranded batches", False)]
    assert stranded.batch("nightly").state == "open"


def test_a_stranded_batch_is_started(stranded: Queue, store: Store, clock: Clock) -> None:
    clock.advance(seconds=700)
    [done] = store.repair(batches="start")
    assert done.done
    assert "started" in done.action
    assert payloads(take_all(stranded)) == ["late"]
    assert store.repair(batches="start") == []


def test_a_stranded_batch_is_cancelled(stranded: Queue, store: Store, clock: Clock) -> None:
    clock.advance(seconds=700)
    [done] = store.repair(batches="cancel")
    assert "cancelled" in done.action
    assert stranded.batch("nightly").state == "cancelled"
    assert named(store, "stranded batches") == []


def test_other_decisions_are_refused_by_name(store: Store) -> None:
    with pytest.raises(InvalidInput, match="'stop'"):
        store.repair(batches="stop")
