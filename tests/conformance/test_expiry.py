"""ttl: a message is never delivered after `expires_at`, whatever its state was."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock import Event, LeaseLost, Queue, State, Store
from tests.conformance.assertions import assert_books_balance, assert_trail_is_legal, nonzero, take, take_all, trail
from tests.conformance.clock import Clock


def test_a_message_is_delivered_until_it_expires_and_never_after(queue: Queue, clock: Clock) -> None:
    queue.send("lives", ttl_seconds=613)
    queue.send("dies", ttl_seconds=599)
    clock.advance(seconds=600)
    assert [delivery.json() for delivery in take_all(queue)] == ["lives"]


def test_a_message_that_expired_unread_is_a_dead_letter_of_the_primary_group(
    queue: Queue, store: Store, clock: Clock
) -> None:
    message_id = queue.send(1, ttl_seconds=613)
    clock.advance(seconds=614)
    assert store.sweep().expired == 1
    [dead] = queue.dead_letters()
    assert (dead.id, dead.group, dead.outcome, dead.attempts) == (message_id, "default", State.EXPIRED, 0)
    assert trail(queue, message_id) == [(Event.SEND, State.READY), (Event.EXPIRE, State.EXPIRED)]
    assert nonzero(assert_books_balance(queue, sent=1).outcomes) == {"expired": 1}


def test_a_message_expires_once_however_often_it_is_swept(queue: Queue, store: Store, clock: Clock) -> None:
    queue.send(1, ttl_seconds=613)
    clock.advance(seconds=614)
    assert [store.sweep().expired for _ in range(3)] == [1, 0, 0]
    assert len(queue.dead_letters()) == 1


def test_a_receive_finds_out_about_an_expired_message_as_well_as_a_sweep(
    queue: Queue, store: Store, clock: Clock
) -> None:
    message_id = queue.send(1, ttl_seconds=613)
    clock.advance(seconds=614)
    assert queue.receive() == []
    store.sweep()
    assert len(queue.dead_letters()) == 1
    assert_trail_is_legal(queue, message_id)
    assert_books_balance(queue, sent=1)


def test_a_held_message_expires(queue: Queue, store: Store, clock: Clock) -> None:
    message_id = queue.send(1, delay_seconds=700, ttl_seconds=613)
    clock.advance(seconds=614)
    assert store.sweep().expired == 1
    clock.advance(seconds=100)
    assert queue.receive() == []
    assert trail(queue, message_id) == [(Event.SEND, State.HELD), (Event.EXPIRE, State.EXPIRED)]
    assert assert_books_balance(queue, sent=1).dead == 1


def test_a_message_that_waits_for_a_retry_expires(queue: Queue, store: Store, clock: Clock) -> None:
    message_id = queue.send(1, ttl_seconds=613)
    take(queue).nak("busy", delay_seconds=700)
    clock.advance(seconds=614)
    store.sweep()
    clock.advance(seconds=100)
    assert queue.receive() == []
    [dead] = queue.dead_letters()
    assert (dead.outcome, dead.attempts) == (State.EXPIRED, 1)
    assert trail(queue, message_id)[-1] == (Event.EXPIRE, State.EXPIRED)
    assert_books_balance(queue, sent=1)


def test_a_due_retry_expires(queue: Queue, store: Store, clock: Clock) -> None:
    message_id = queue.send(1, ttl_seconds=613)
    take(queue).nak("busy", delay_seconds=0)
    clock.advance(seconds=614)
    assert queue.receive() == []
    store.sweep()
    assert queue.dead_letters()[0].outcome is State.EXPIRED
    assert_trail_is_legal(queue, message_id)
    assert_books_balance(queue, sent=1)


def test_the_lease_of_an_expiring_message_ends_with_it(queue: Queue, store: Store, clock: Clock) -> None:
    message_id = queue.send(1, ttl_seconds=13)
    delivery = take(queue)
    assert delivery.lease_ends_at == clock.now + timedelta(seconds=13)
    clock.advance(seconds=14)
    with pytest.raises(LeaseLost):
        delivery.ack()
    store.sweep()
    assert queue.receive() == []
    [dead] = queue.dead_letters()
    assert (dead.outcome, dead.attempts) == (State.EXPIRED, 1)
    assert trail(queue, message_id)[-1] == (Event.EXPIRE, State.EXPIRED)
    assert_books_balance(queue, sent=1)


def test_the_others_of_a_receive_keep_their_lease_when_one_message_expires(queue: Queue, clock: Clock) -> None:
    queue.send("brief", ttl_seconds=13)
    queue.send("long")
    brief, long = take_all(queue)
    assert long.lease_ends_at == clock.now + timedelta(seconds=37)
    clock.advance(seconds=14)
    assert queue.receive() == []
    long.ack()
    with pytest.raises(LeaseLost):
        brief.ack()


def test_an_expired_message_is_counted_and_audited_but_no_dead_letter_in_other_groups(
    queue: Queue, store: Store, clock: Clock
) -> None:
    queue.receive(group="billing")
    message_id = queue.send(1, ttl_seconds=613)
    clock.advance(seconds=614)
    store.sweep()
    assert queue.receive(group="billing") == []
    store.sweep()
    assert queue.dead_letters(group="billing") == []
    stats = assert_books_balance(queue, sent=1, group="billing")
    assert nonzero(stats.outcomes) == {"expired": 1}
    assert stats.dead == 0
    assert_trail_is_legal(queue, message_id, "billing")
    assert trail(queue, message_id, "billing")[-1] == (Event.EXPIRE, State.EXPIRED)


def test_a_message_that_one_group_finished_may_still_expire_in_another(
    queue: Queue, store: Store, clock: Clock
) -> None:
    queue.receive(group="billing")
    queue.send(1, ttl_seconds=613)
    take(queue).ack()
    clock.advance(seconds=614)
    store.sweep()
    assert queue.receive(group="billing") == []
    store.sweep()
    assert nonzero(queue.stats("default").outcomes) == {"succeeded": 1}
    assert nonzero(queue.stats("billing").outcomes) == {"expired": 1}
    assert queue.dead_letters() == []


def test_a_message_that_expired_before_a_group_began_is_no_riddle_in_its_books(
    queue: Queue, store: Store, clock: Clock
) -> None:
    queue.send("ready", ttl_seconds=13)
    queue.send("held", ttl_seconds=13, delay_seconds=20)
    queue.send("lives")
    clock.advance(seconds=14)
    store.sweep()
    assert [delivery.json() for delivery in take_all(queue, group="late")] == ["lives"]
    store.sweep()
    for group in ("default", "late"):
        assert nonzero(assert_books_balance(queue, sent=3, group=group).outcomes) == {"expired": 2}


def test_a_held_message_that_expired_keeps_its_priority_where_it_can_be_read(
    queue: Queue, store: Store, clock: Clock
) -> None:
    message_id = queue.send(1, priority=3, ttl_seconds=13, delay_seconds=20)
    clock.advance(seconds=14)
    store.sweep()
    assert queue.find(message_id).priority == 3
    assert [archived.message.priority for archived in queue.archive()] == [3]
    queue.redrive()
    assert take(queue).priority == 3


def test_messages_behind_many_expired_ones_are_received(queue: Queue, clock: Clock) -> None:
    for _ in range(300):
        queue.send("dies", ttl_seconds=13) if _ % 3 else queue.send("lives", ttl_seconds=613)
    clock.advance(seconds=14)
    assert [delivery.json() for delivery in take_all(queue)] == ["lives"] * 100


def test_one_receive_looks_past_expired_messages_to_fill_its_limit(queue: Queue, clock: Clock) -> None:
    queue.send("dies", ttl_seconds=13)
    queue.send("lives")
    clock.advance(seconds=14)
    assert take(queue, limit=1).json() == "lives"


def test_an_expired_message_is_not_shown_as_waiting(queue: Queue, store: Store, clock: Clock) -> None:
    queue.send(1, ttl_seconds=613)
    clock.advance(seconds=614)
    assert queue.peek() == []
    store.sweep()
    stats = queue.stats("default")
    assert stats.available == 0
    assert stats.oldest_age_seconds is None
