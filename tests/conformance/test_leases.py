"""leases, take_over, browse, unread and forget: methods for the servers, which know messages by id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Event, InvalidInput, LeaseLost, Outgoing, Queue, State, Store
from penstock.domain.settlement import Settle
from penstock.domain.timestamps import to_time
from penstock.engines.contract import Engine
from tests.conformance.assertions import assert_books_balance, assert_trail_is_legal, ids, take, take_all, trail
from tests.conformance.clock import Clock

OWN_ID = "7d444840-9dc0-11d1-b245-5ffdce74fad2"


def settle(engine: Engine, event: Event, lease: Any) -> Any:
    return engine.settle("orders", "default", [Settle(event, lease.id, lease.position, lease.token)])[0]


def test_a_lease_is_found_by_its_message(queue: Queue, clock: Clock) -> None:
    for chosen in (None, OWN_ID):
        message_id = queue.send(1, id=chosen)
        clock.advance(seconds=3)
        delivery = take(queue, consumer="carol", lease_seconds=13)
        [lease] = queue.engine.leases("orders", "default", ids=[message_id])
        assert (lease.id, lease.token, lease.position) == (message_id, delivery.token, delivery.position)
        assert (lease.consumer, lease.attempt, lease.ends_at) == ("carol", 1, delivery.lease_ends_at)
        assert lease.leased_at == to_time(clock())
        assert settle(queue.engine, Event.ACK, lease).ok
        assert queue.engine.leases("orders", "default", ids=[message_id]) == []


def test_the_middle_of_a_receive_is_found_too(queue: Queue) -> None:
    sent = queue.send_many([Outgoing(payload=number) for number in range(5)])
    received = take_all(queue)
    received[1].ack()
    for message_id, delivery in zip(sent, received, strict=True):
        found = queue.engine.leases("orders", "default", ids=[message_id])
        assert [one.token for one in found] == ([] if delivery is received[1] else [delivery.token])


def test_retries_are_found_with_their_attempt(queue: Queue) -> None:
    message_id = queue.send(1)
    take(queue).nak("again", delay_seconds=0)
    again = take(queue, consumer="dave")
    [lease] = queue.engine.leases("orders", "default", ids=[message_id])
    assert (lease.token, lease.attempt, lease.consumer) == (again.token, 2, "dave")


def test_what_is_not_in_flight_has_no_lease(queue: Queue, store: Store, clock: Clock) -> None:
    engine = queue.engine
    message_id = queue.send(1)
    held = queue.send(2, delay_seconds=1000)
    assert engine.leases("orders", "default", ids=[message_id, held, OWN_ID]) == []
    take(queue, lease_seconds=5)
    assert engine.leases("orders", "other", ids=[message_id]) == []
    assert engine.leases("unknown", "default", ids=[message_id]) == []
    clock.advance(seconds=5)
    assert engine.leases("orders", "default", ids=[message_id]) == []
    assert engine.leases("orders", "default") == []


def test_leases_are_listed_in_order_by_consumer_and_after_a_position(queue: Queue) -> None:
    sent = queue.send_many(list(range(6)))
    first = queue.receive(limit=2, consumer="a")
    queue.receive(limit=3, consumer="b")
    first[0].nak("again", delay_seconds=0)
    take(queue, consumer="b")
    engine = queue.engine
    assert ids(engine.leases("orders", "default")) == sent[:5]
    assert ids(engine.leases("orders", "default", consumer="a")) == [sent[1]]
    assert ids(engine.leases("orders", "default", consumer="b")) == [sent[0], *sent[2:5]]
    assert ids(engine.leases("orders", "default", limit=2)) == sent[:2]
    position = queue.find(sent[2]).position or 0
    assert ids(engine.leases("orders", "default", after=position)) == sent[3:5]


@pytest.mark.parametrize(("counts", "attempt"), [(True, 2), (False, 1)])
def test_taking_over_gives_the_message_to_another_consumer(queue: Queue, counts: bool, attempt: int) -> None:
    message_id = queue.send(b"1", headers={"a": "b"})
    before = take(queue, consumer="slow")
    receipt = queue.engine.take_over("orders", "default", "quick", [message_id], 17, counts)
    assert receipt.token > before.token
    [lease] = queue.engine.leases("orders", "default")
    assert (lease.consumer, lease.token, lease.attempt) == ("quick", receipt.token, attempt)
    with pytest.raises(LeaseLost):
        before.ack()
    assert settle(queue.engine, Event.ACK, lease).ok
    assert_trail_is_legal(queue, message_id)
    assert trail(queue, message_id)[-1] == (Event.ACK, State.SUCCEEDED)
    assert queue.stats(group="default").done == 1


def test_taking_over_the_last_attempt_leaves_a_dead_letter_instead(queue: Queue) -> None:
    queue.store.queue("orders", max_retries=0)
    message_id = queue.send(1)
    take(queue)
    assert queue.engine.take_over("orders", "default", "quick", [message_id], 17).rows == []
    assert ids(queue.dead_letters()) == [message_id]


def test_taking_over_what_is_not_in_flight_takes_nothing(queue: Queue) -> None:
    message_id = queue.send(1)
    take_all(queue, group="other")
    queue.peek()
    queue.receive(limit=1, group="default")
    take_all(queue)
    assert queue.engine.take_over("orders", "other", "quick", [OWN_ID], 17).rows == []
    assert len(queue.engine.take_over("orders", "other", "quick", [message_id, message_id], 17).rows) == 1


FORCED: dict[str, Callable[[Queue], object]] = {
    "unread": lambda queue: None,
    "succeeded": lambda queue: take(queue).ack(),
    "dead": lambda queue: take(queue).reject("bad"),
    "waiting for a retry": lambda queue: take(queue).nak("busy"),
    "passed by": lambda queue: queue.seek("default", "end"),
}


@pytest.mark.parametrize("place", FORCED)
def test_by_force_a_message_is_received_wherever_it_is(queue: Queue, clock: Clock, place: str) -> None:
    message_id, _ = queue.send_many([b"1", b"2"])
    FORCED[place](queue)
    receipt = queue.engine.take_over("orders", "default", "pushy", [message_id, OWN_ID], 17, force=True)
    [lease] = queue.engine.leases("orders", "default", consumer="pushy")
    assert (lease.id, lease.token) == (message_id, receipt.token)
    assert_trail_is_legal(queue, message_id)
    assert_books_balance(queue, sent=2) if place != "passed by" else None
    assert message_id not in ids(take_all(queue)), "the cursor passes over it"
    assert settle(queue.engine, Event.ACK, lease).ok
    assert queue.stats(group="default").dead == 0
    assert take_all(queue) == []


def test_force_takes_nothing_that_is_over_or_in_flight_elsewhere(queue: Queue, clock: Clock) -> None:
    gone = queue.send(1, ttl_seconds=5)
    clock.advance(seconds=6)
    held = queue.send(2, delay_seconds=60)
    assert queue.engine.take_over("orders", "default", "pushy", [gone, held, OWN_ID], 17, force=True).rows == []


def test_how_far_a_group_has_come(queue: Queue) -> None:
    sent = queue.send_many([1, 2, 3])
    reached = queue.engine.reached
    assert reached("orders", "default") == reached("orders", "nobody") == reached("nowhere", "default") == 0
    queue.receive(limit=2)
    assert reached("orders", "default") == queue.find(sent[1]).position
    queue.seek("default", "end")
    assert reached("orders", "default") == queue.find(sent[2]).position


def test_browsing_shows_the_log_whatever_became_of_its_messages(queue: Queue, store: Store) -> None:
    engine = queue.engine
    sent = [queue.send(number, priority=number % 2) for number in range(4)]
    store.queue("neighbour").send("theirs")
    sent.append(queue.send(4))
    take(queue).ack()
    take(queue).reject("no")
    places = [queue.find(message_id).position or 0 for message_id in sent]
    assert ids(engine.browse("orders", 0, None, 100)) == sent
    assert ids(engine.browse("orders", 0, None, 2)) == sent[:2]
    assert ids(engine.browse("orders", 0, None, 2, backwards=True)) == [sent[4], sent[3]]
    assert ids(engine.browse("orders", places[0], places[3], 100)) == sent[1:4]
    assert ids(engine.browse("orders", places[0], places[3], 100, backwards=True)) == sent[3:0:-1]
    assert engine.browse("unknown", 0, None, 100) == []


def test_unread_counts_what_a_new_group_could_have(queue: Queue, store: Store, clock: Clock) -> None:
    engine = queue.engine
    assert engine.unread("unknown") == engine.unread("orders") == 0
    queue.send_many([1, 2, 3])
    queue.send(4, ttl_seconds=10)
    store.queue("neighbour").send(1, ttl_seconds=10)
    take(queue).ack()
    assert engine.unread("orders") == 4 == len(take_all(queue, group="new"))
    clock.advance(seconds=10)
    assert engine.unread("orders") == 3


def test_a_forgotten_group_begins_anew(queue: Queue) -> None:
    sent = queue.send_many([1, 2])
    lost = take(queue, group="other")
    take(queue, group="other").reject("no")
    assert queue.engine.forget("orders", "other")
    assert not queue.engine.forget("orders", "other")
    assert not queue.engine.forget("unknown", "other")
    assert queue.groups() == ["default"]
    with pytest.raises(LeaseLost):
        lost.ack()
    assert ids(take_all(queue, group="other")) == sent
    assert queue.dead_letters(group="other") == []
    with pytest.raises(InvalidInput, match="primary"):
        queue.engine.forget("orders", "default")
    assert ids(take_all(queue)) == sent


def test_several_consumers_receive_at_once(queue: Queue, clock: Clock) -> None:
    sent = [queue.send(number) for number in range(7)]
    take(queue).nak("again", delay_seconds=0)
    queue.send(7, priority=1, ttl_seconds=5)
    shares = [("a", 2), ("b", 1), ("a", 3), ("c", 9), ("d", 2)]
    receipts = queue.engine.receive_each("orders", None, shares, 37)
    assert [receipt.consumer for receipt in receipts] == ["a", "b", "a", "c", "d"]
    assert [len(receipt.rows) for receipt in receipts] == [2, 1, 3, 2, 0]
    leases = queue.engine.leases("orders", "default")
    assert [lease.consumer for lease in leases] == ["a", "a", "b", "a", "a", "a", "c", "c"]
    assert ids(leases)[:7] == sent
    assert [lease.attempt for lease in leases] == [2, *[1] * 7]
    for lease in leases:
        assert settle(queue.engine, Event.ACK, lease).ok
        assert_trail_is_legal(queue, lease.id)
    assert queue.audit(sent[2])[-1].by == "b"
    assert queue.stats(group="default").done == 8


@pytest.mark.parametrize(("ttl_seconds", "left_out"), [(None, None), (None, 3), (900, None)])
def test_several_consumers_ack_at_once(queue: Queue, ttl_seconds: int | None, left_out: int | None) -> None:
    sent = queue.send_many([Outgoing(payload=number, ttl_seconds=ttl_seconds) for number in range(7)])
    shares = [("a", 1), ("b", 3), ("c", 1), ("d", 2)]
    queue.engine.receive_each("orders", None, shares, 37)
    leases = queue.engine.leases("orders", "default")
    acked = [lease for place, lease in enumerate(leases) if place != left_out]
    for _ in range(2):  # the second time is harmless
        acks = [Settle(Event.ACK, one.id, one.position, one.token) for one in acked]
        assert all(one.ok for one in queue.engine.settle("orders", "default", acks))
    assert [lease.id for lease in queue.engine.leases("orders", "default")] == (
        [] if left_out is None else [sent[left_out]]
    )
    for lease in acked:
        assert [(entry.event, entry.by) for entry in queue.audit(lease.id)[1:]] == [
            (Event.RECEIVE, lease.consumer),
            (Event.ACK, lease.consumer),
        ]
        assert_trail_is_legal(queue, lease.id)
    assert queue.stats(group="default").done == len(acked)
    assert_books_balance(queue, 7)


def test_acks_of_leases_that_have_ended_change_nothing(queue: Queue, clock: Clock) -> None:
    sent = [queue.send(number) for number in range(3)]
    queue.engine.receive_each("orders", None, [("a", 1), ("b", 1), ("c", 1)], 37)
    leases = queue.engine.leases("orders", "default")
    clock.advance(seconds=38)
    acks = [Settle(Event.ACK, one.id, one.position, one.token) for one in leases]
    assert [type(one.error) for one in queue.engine.settle("orders", "default", acks)] == [LeaseLost] * 3
    assert ids(take_all(queue)) == sent


def test_several_consumers_of_an_ordered_queue_never_share_a_key(store: Store) -> None:
    queue = store.queue("ordered", ordered=True, shards=3)
    for number in range(4):
        queue.send(number, key="same")
    receipts = queue.engine.receive_each("ordered", "default", [("a", 1), ("b", 1)], 37)
    assert [len(receipt.rows) for receipt in receipts] == [1, 0]
