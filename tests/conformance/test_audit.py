"""audit: the complete, ordered, legal trail of one message."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock import Event, NotFound, Queue, State, Store
from tests.conformance.assertions import assert_trail_is_legal, take, take_all
from tests.conformance.clock import Clock


def test_a_whole_life_is_told_step_by_step(queue: Queue, clock: Clock) -> None:
    born = clock.now
    message_id = queue.send(1, delay_seconds=13, created_by="shop")
    clock.advance(seconds=14)
    take(queue, consumer="press 1").nak("jam", delay_seconds=19)
    clock.advance(seconds=20)
    take(queue, consumer="press 2")
    clock.advance(seconds=38)
    delivery = take(queue, consumer="press 3")
    clock.advance(seconds=1)
    delivery.ack("printed")
    told = [
        ((entry.at - born).total_seconds(), entry.event, entry.state, entry.by, entry.reason, entry.attempt)
        for entry in queue.audit(message_id)
        if entry.event not in (Event.DUE, Event.LEASE_END)
    ]
    assert told == [
        (0, Event.SEND, State.HELD, "shop", None, 0),
        (14, Event.RECEIVE, State.LEASED, "press 1", None, 1),
        (14, Event.NAK, State.HELD, "press 1", "jam", 1),
        (34, Event.RECEIVE, State.LEASED, "press 2", None, 2),
        (72, Event.RECEIVE, State.LEASED, "press 3", None, 3),
        (73, Event.ACK, State.SUCCEEDED, "press 3", "printed", 3),
    ]
    assert_trail_is_legal(queue, message_id)


def test_a_retry_that_became_due_is_told(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(1)
    take(queue).nak("busy", delay_seconds=19)
    clock.advance(seconds=20)
    take(queue)
    assert_trail_is_legal(queue, message_id)
    assert [(entry.event, entry.state) for entry in queue.audit(message_id)] == [
        (Event.SEND, State.READY),
        (Event.RECEIVE, State.LEASED),
        (Event.NAK, State.HELD),
        (Event.DUE, State.READY),
        (Event.RECEIVE, State.LEASED),
    ]


def test_every_message_of_a_bulk_has_a_trail_of_its_own(queue: Queue) -> None:
    sent = queue.send_many(list(range(50)))
    deliveries = take_all(queue)
    deliveries[7].reject("seven")
    queue.ack_many(deliveries[8:])
    for place, message_id in enumerate(sent):
        events = [entry.event for entry in queue.audit(message_id)]
        expected = [Event.SEND, Event.RECEIVE]
        if place >= 7:
            expected.append(Event.REJECT if place == 7 else Event.ACK)
        assert events == expected


def test_trails_of_two_groups_are_both_told_in_order_of_time(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(1)
    mine = take(queue)
    clock.advance(seconds=1)
    theirs = take(queue, group="billing")
    clock.advance(seconds=1)
    mine.ack()
    clock.advance(seconds=1)
    theirs.reject("no")
    assert [(entry.group, entry.event) for entry in queue.audit(message_id)] == [
        (None, Event.SEND),
        ("default", Event.RECEIVE),
        ("billing", Event.RECEIVE),
        ("default", Event.ACK),
        ("billing", Event.REJECT),
    ]


def test_a_settlement_that_was_repeated_or_lost_is_not_in_the_trail(queue: Queue) -> None:
    message_id = queue.send(1)
    delivery = take(queue)
    delivery.ack()
    delivery.ack()
    assert [entry.event for entry in queue.audit(message_id)] == [Event.SEND, Event.RECEIVE, Event.ACK]


def test_extending_a_lease_leaves_the_trail_legal(queue: Queue) -> None:
    message_id = queue.send(1)
    delivery = take(queue)
    delivery.extend(53)
    delivery.ack()
    assert_trail_is_legal(queue, message_id)


def test_a_trail_is_still_there_when_its_message_is_finished(queue: Queue, store: Store, clock: Clock) -> None:
    message_id = queue.send(1)
    take(queue).ack()
    store.sweep()
    clock.advance(seconds=5_003)
    store.sweep()
    assert len(queue.audit(message_id)) == 3


def test_times_in_the_trail_are_aware_and_to_the_microsecond(queue: Queue, clock: Clock) -> None:
    clock.advance(seconds=0.000_001)
    [entry] = queue.audit(queue.send(1))
    assert entry.at == clock.now
    assert entry.at.utcoffset() == timedelta(0)


def test_an_unknown_message_has_no_trail(queue: Queue, store: Store) -> None:
    queue.send(1)
    unknown = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
    with pytest.raises(NotFound, match=unknown):
        queue.audit(unknown)
    with pytest.raises(NotFound):
        store.queue("unknown").audit(unknown)
