"""receive: ready -> leased."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock import Event, InvalidInput, Queue, State, Store
from tests.conformance.assertions import ids, payloads, take, take_all, trail
from tests.conformance.clients import Opener
from tests.conformance.clock import Clock


def test_an_empty_queue_gives_nothing_at_once(queue: Queue) -> None:
    assert queue.receive() == []


def test_a_queue_that_was_never_used_gives_nothing(store: Store) -> None:
    assert store.queue("never used").receive(limit=10) == []


def test_a_receive_takes_one_message_unless_told_otherwise(queue: Queue) -> None:
    queue.send_many([1, 2, 3])
    assert payloads(queue.receive()) == [1]


def test_a_receive_takes_no_more_than_its_limit_and_no_more_than_there_is(queue: Queue) -> None:
    queue.send_many(list(range(7)))
    assert payloads(queue.receive(limit=5)) == [0, 1, 2, 3, 4]
    assert payloads(queue.receive(limit=5)) == [5, 6]


def test_the_lease_lasts_as_long_as_the_policy_says(queue: Queue, clock: Clock) -> None:
    queue.send(1)
    assert take(queue).lease_ends_at == clock.now + timedelta(seconds=37)


def test_a_receive_may_ask_for_its_own_lease(queue: Queue, clock: Clock) -> None:
    queue.send(1)
    assert take(queue, lease_seconds=5.25).lease_ends_at == clock.now + timedelta(seconds=5.25)


def test_a_changed_policy_holds_from_the_next_receive_on(queue: Queue, store: Store, clock: Clock) -> None:
    queue.send_many([1, 2])
    before = take(queue)
    store.queue("orders", lease_seconds=91)
    assert take(queue).lease_ends_at == clock.now + timedelta(seconds=91)
    assert before.lease_ends_at == clock.now + timedelta(seconds=37)


def test_a_leased_message_is_not_given_again(queue: Queue) -> None:
    queue.send(1)
    take(queue)
    assert queue.receive() == []


def test_the_first_delivery_is_attempt_one(queue: Queue) -> None:
    queue.send(1)
    assert take(queue).attempt == 1


def test_all_deliveries_of_one_receive_share_a_token_and_later_tokens_are_greater(queue: Queue) -> None:
    queue.send_many([1, 2, 3, 4])
    first, second = queue.receive(limit=2), queue.receive(limit=2)
    assert len({delivery.token for delivery in first}) == 1
    assert len({delivery.token for delivery in second}) == 1
    assert isinstance(first[0].token, int)
    assert first[0].token < second[0].token


def test_tokens_go_on_rising_when_the_store_is_opened_again(queue: Queue, open_store: Opener) -> None:
    queue.send_many([1, 2])
    first = take(queue)
    assert take(open_store().queue("orders")).token > first.token


def test_tokens_go_on_rising_when_every_lease_is_gone(queue: Queue) -> None:
    queue.send_many([1, 2])
    first = take(queue)
    first.ack()
    assert take(queue).token > first.token


def test_the_audit_names_the_consumer_and_the_attempt(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(1)
    clock.advance(seconds=3)
    take(queue, consumer="press 4")
    entry = queue.audit(message_id)[-1]
    assert (entry.event, entry.state) == (Event.RECEIVE, State.LEASED)
    assert (entry.by, entry.group, entry.attempt, entry.at) == ("press 4", "default", 1, clock.now)


def test_a_delivery_knows_its_consumer(queue: Queue) -> None:
    queue.send(1)
    assert take(queue, consumer="press 4").consumer == "press 4"


def test_a_receive_without_a_consumer_still_has_a_name_in_the_audit(queue: Queue) -> None:
    message_id = queue.send(1)
    delivery = take(queue)
    assert delivery.consumer
    assert queue.audit(message_id)[-1].by == delivery.consumer


def test_a_receive_that_finds_nothing_leaves_no_trace(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(1, delay_seconds=13)
    for _ in range(3):
        assert queue.receive() == []
    assert trail(queue, message_id) == [(Event.SEND, State.HELD)]
    assert queue.stats("default").in_progress == 0


def test_what_was_received_is_what_was_sent_message_by_message(queue: Queue) -> None:
    sent = {queue.send({"n": number}): number for number in range(9)}
    assert {delivery.id: delivery.json()["n"] for delivery in take_all(queue)} == sent


def test_two_openings_of_a_store_never_hand_out_the_same_message(queue: Queue, open_store: Opener) -> None:
    sent = queue.send_many(list(range(20)))
    other = open_store().queue("orders")
    taken = [*queue.receive(limit=7), *other.receive(limit=7), *queue.receive(limit=7)]
    assert sorted(ids(taken)) == sorted(sent)


BAD_CALLS: list[dict[str, Any]] = [
    {"limit": 0},
    {"limit": -4},
    {"limit": 1_000_001},
    {"limit": True},
    {"limit": 2.0},
    {"limit": "all"},
    {"lease_seconds": 0},
    {"lease_seconds": -1},
    {"lease_seconds": float("nan")},
    {"lease_seconds": "long"},
    {"wait_seconds": -1},
    {"wait_seconds": float("inf")},
    {"wait_seconds": None},
    {"consumer": ""},
    {"consumer": "a\tb"},
    {"group": ""},
    {"group": "g\x00"},
    {"group": 7},
]


@pytest.mark.parametrize("options", BAD_CALLS, ids=str)
def test_a_bad_argument_is_refused_by_name_and_nothing_is_leased(queue: Queue, options: dict[str, Any]) -> None:
    queue.send(1)
    with pytest.raises(InvalidInput, match=next(iter(options))):
        queue.receive(**options)
    assert queue.stats("default").in_progress == 0
    assert take(queue).attempt == 1
