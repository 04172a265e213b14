"""redrive and purge of dead letters."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest

from penstock import Event, InvalidInput, Queue, State, Store
from tests.conformance.assertions import (
    assert_books_balance,
    assert_trail_is_legal,
    group_entries,
    ids,
    nonzero,
    payloads,
    take,
    take_all,
    trail,
)
from tests.conformance.clock import Clock


def reject_all(queue: Queue, group: str = "default") -> None:
    for delivery in take_all(queue, group=group):
        delivery.reject(f"no {delivery.json()}")


def test_a_redriven_message_is_the_same_message_tried_anew(queue: Queue, clock: Clock) -> None:
    message_id = queue.send({"order": 1}, headers={"a": "b"}, priority=3)
    take(queue).nak("busy", delay_seconds=0)
    take(queue).reject("no")
    clock.advance(seconds=3)
    assert queue.redrive() == 1
    assert queue.dead_letters() == []
    assert trail(queue, message_id)[-1] == (Event.REDRIVE, State.READY)
    assert group_entries(queue, message_id)[-1].at == clock.now
    delivery = take(queue)
    assert (delivery.id, delivery.attempt, delivery.json()) == (message_id, 1, {"order": 1})
    assert (delivery.headers, delivery.priority) == ({"a": "b"}, 3)
    delivery.ack()
    assert_trail_is_legal(queue, message_id)
    assert assert_books_balance(queue, sent=1).done == 1


def test_a_redriven_member_still_tells_its_batch(queue: Queue) -> None:
    """Although the dead letter is not counted any more."""
    message_id = queue.batch("nightly").send(b"x")
    queue.batch("nightly").start()
    take(queue).reject("no")
    queue.redrive()
    first = take(queue)
    first.nak("busy", delay_seconds=0)
    assert [first.batch, take(queue).batch, queue.find(message_id).batch] == ["nightly"] * 3


def test_a_redriven_message_has_all_its_retries_again(queue: Queue) -> None:
    message_id = queue.send(1)
    for _ in range(4):
        take(queue).nak("busy", delay_seconds=0)
    queue.redrive()
    for attempt in (1, 2, 3, 4):
        delivery = take(queue)
        assert delivery.attempt == attempt
        delivery.nak("busy again", delay_seconds=0)
    [dead] = queue.dead_letters()
    assert (dead.id, dead.attempts, dead.reason) == (message_id, 4, "busy again")
    assert_trail_is_legal(queue, message_id)
    assert_books_balance(queue, sent=1)


def test_redriven_messages_count_as_due_retries(queue: Queue) -> None:
    queue.send_many([1, 2])
    reject_all(queue)
    queue.redrive(limit=1)
    stats = assert_books_balance(queue, sent=2)
    assert stats.dead == 1
    assert stats.available + stats.redo == 1
    assert nonzero(stats.outcomes) == {"rejected": 1}


def test_a_redriven_message_that_had_expired_lives_for_its_ttl_again(queue: Queue, store: Store, clock: Clock) -> None:
    queue.send(1, ttl_seconds=613, deadline_at=clock.now + timedelta(seconds=701))
    clock.advance(seconds=2_003)
    store.sweep()
    assert queue.redrive() == 1
    redriven_at = clock.now
    clock.advance(seconds=610)
    delivery = take(queue)
    assert delivery.attempt == 1
    assert delivery.expires_at == redriven_at + timedelta(seconds=613)
    assert delivery.deadline_at == redriven_at + timedelta(seconds=701)
    clock.advance(seconds=2_003)
    store.sweep()
    assert queue.dead_letters()[0].outcome is State.EXPIRED
    assert_books_balance(queue, sent=1)


def test_ids_pick_what_is_redriven(queue: Queue) -> None:
    sent = queue.send_many([1, 2, 3])
    reject_all(queue)
    assert queue.redrive([sent[2], sent[0]]) == 2
    assert ids(queue.dead_letters()) == [sent[1]]
    assert sorted(payloads(take_all(queue))) == [1, 3]


def test_one_id_needs_no_list_and_may_be_spelled_otherwise(queue: Queue) -> None:
    sent = queue.send_many([1, 2])
    reject_all(queue)
    assert queue.redrive(sent[0].upper()) == 1
    assert payloads(take_all(queue)) == [1]


def test_an_outcome_picks_what_is_redriven(queue: Queue) -> None:
    queue.send("failing")
    for _ in range(4):
        take(queue).nak("busy", delay_seconds=0)
    queue.send("rejected")
    take(queue).reject("no")
    assert queue.redrive(outcome="failed") == 1
    assert payloads(take_all(queue)) == ["failing"]


def test_a_group_redrives_its_own(queue: Queue) -> None:
    queue.send(1)
    reject_all(queue)
    reject_all(queue, group="billing")
    assert queue.redrive(group="billing") == 1
    assert queue.receive() == []
    assert take(queue, group="billing").attempt == 1
    assert [dead.group for dead in queue.dead_letters()] == ["default"]


def test_redriving_nothing_counts_nothing(queue: Queue) -> None:
    queue.send(1)
    assert queue.redrive() == 0
    assert queue.redrive([]) == 0
    assert queue.redrive(str(uuid.uuid4())) == 0
    assert take(queue).attempt == 1


def test_a_message_is_redriven_once(queue: Queue) -> None:
    message_id = queue.send(1)
    reject_all(queue)
    assert [queue.redrive(message_id), queue.redrive(message_id), queue.redrive()] == [1, 0, 0]
    assert len(take_all(queue)) == 1


def test_an_id_given_twice_is_redriven_once(queue: Queue) -> None:
    message_id = queue.send(1)
    reject_all(queue)
    assert queue.redrive([message_id, message_id]) == 1
    assert len(take_all(queue)) == 1


def test_a_message_that_was_trimmed_from_the_log_can_still_be_redriven(
    queue: Queue, store: Store, clock: Clock
) -> None:
    message_id = queue.send(1)
    reject_all(queue)
    queue.send(2)
    take(queue).ack()
    for _ in range(3):
        store.sweep()
        clock.advance(seconds=7_003)
    store.sweep()
    assert queue.redrive(message_id) == 1
    delivery = take(queue)
    assert (delivery.id, delivery.json()) == (message_id, 1)
    delivery.ack()


def test_a_message_is_not_redriven_while_another_one_lives_at_its_address(queue: Queue) -> None:
    dead = queue.send("dead", address="desk")
    reject_all(queue)
    queue.send("live", address="desk")
    assert queue.redrive(dead) == 0
    assert payloads(take_all(queue)) == ["live"]
    assert ids(queue.dead_letters()) == [dead]


def test_many_are_redriven_in_one_call(queue: Queue) -> None:
    queue.send_many(list(range(500)))
    reject_all(queue)
    assert queue.redrive() == 500
    assert sorted(payloads(take_all(queue))) == list(range(500))


# -- purge -------------------------------------------------------------------------------------------------------


def test_a_purged_dead_letter_is_gone_for_good(queue: Queue) -> None:
    queue.send(1)
    reject_all(queue)
    assert queue.purge() == 1
    assert queue.dead_letters() == []
    assert queue.redrive() == 0
    stats = assert_books_balance(queue, sent=1)
    assert (stats.dead, nonzero(stats.outcomes)) == (0, {"rejected": 1})


def test_ids_groups_outcomes_and_limits_pick_what_is_purged(queue: Queue) -> None:
    sent = queue.send_many([1, 2, 3, 4])
    reject_all(queue)
    reject_all(queue, group="billing")
    assert queue.purge(sent[0]) == 1
    assert queue.purge([sent[0], sent[1]]) == 1
    assert queue.purge(outcome="failed") == 0
    assert queue.purge(limit=1) == 1
    assert len(queue.dead_letters(group="default")) == 1
    assert queue.purge(group="billing", outcome="rejected") == 4
    assert len(queue.dead_letters()) == 1


def test_live_messages_are_never_purged(queue: Queue) -> None:
    message_id = queue.send(1)
    assert queue.purge(message_id) == 0
    assert take(queue).id == message_id


@pytest.mark.parametrize("verb", ["redrive", "purge"])
@pytest.mark.parametrize(
    "options",
    [
        {"ids": "not-a-uuid"}, {"ids": [7]}, {"ids": 7}, {"outcome": "lost"}, {"group": ""},
        {"limit": -1}, {"limit": 0}, {"limit": "all"},
    ],
    ids=str,
)  # fmt: skip
def test_bad_input_is_refused_and_nothing_changes(queue: Queue, verb: str, options: dict[str, Any]) -> None:
    queue.send(1)
    reject_all(queue)
    with pytest.raises(InvalidInput):
        getattr(queue, verb)(**options)
    assert len(queue.dead_letters()) == 1


@pytest.mark.parametrize("wrong", [b"019a8c3e-7b2d-7abc-8def-00000000002a", {"id": 1}], ids=str)
def test_what_is_no_list_of_ids_is_refused(queue: Queue, wrong: Any) -> None:
    for call in (queue.redrive, queue.purge, queue.remove):
        with pytest.raises(InvalidInput, match="this call takes a message id or a list of them, not"):
            call(wrong)
