"""Ids chosen by the caller: sending an id again is the same send."""

from __future__ import annotations

import uuid

import pytest

from penstock import NotFound, Outgoing, Queue, Store
from tests.conformance.assertions import assert_books_balance, ids, payloads, take, take_all
from tests.conformance.clock import Clock

CHOSEN = "7d444840-9dc0-11d1-b245-5ffdce74fad2"


def test_the_same_id_again_is_one_message_with_the_first_payload(queue: Queue) -> None:
    assert queue.send("first", id=CHOSEN) == CHOSEN
    assert queue.send("second", id=CHOSEN) == CHOSEN
    assert payloads(take_all(queue)) == ["first"]
    assert_books_balance(queue, sent=1)


def test_two_spellings_of_a_uuid_are_the_same_id(queue: Queue) -> None:
    assert queue.send(1, id=CHOSEN.upper()) == CHOSEN
    assert queue.send(2, id=CHOSEN.replace("-", "")) == CHOSEN
    assert payloads(take_all(queue)) == [1]
    assert queue.find(CHOSEN.upper()).json() == 1


def test_the_same_id_twice_in_one_send_is_one_message(queue: Queue) -> None:
    sent = queue.send_many([Outgoing(payload=1, id=CHOSEN), b"other", Outgoing(payload=2, id=CHOSEN)])
    assert sent[0] == sent[2] == CHOSEN
    assert ids(take_all(queue)) == sent[:2]
    assert_books_balance(queue, sent=2)


def test_the_same_id_while_it_is_leased_is_not_sent_again(queue: Queue) -> None:
    queue.send(1, id=CHOSEN)
    take(queue)
    assert queue.send(2, id=CHOSEN) == CHOSEN
    assert queue.receive() == []


def test_the_same_id_while_it_is_held_is_not_sent_again(queue: Queue, clock: Clock) -> None:
    queue.send("held", id=CHOSEN, delay_seconds=13)
    assert queue.send("now", id=CHOSEN) == CHOSEN
    assert queue.receive() == []
    clock.advance(seconds=14)
    assert payloads(take_all(queue)) == ["held"]


def test_the_same_id_after_it_finished_is_not_sent_again(queue: Queue) -> None:
    queue.send(1, id=CHOSEN)
    take(queue).ack()
    assert queue.send(2, id=CHOSEN) == CHOSEN
    assert queue.receive() == []
    assert_books_balance(queue, sent=1)


def test_the_same_id_after_it_died_is_not_sent_again(queue: Queue) -> None:
    queue.send(1, id=CHOSEN)
    take(queue).reject("never")
    assert queue.send(2, id=CHOSEN) == CHOSEN
    assert queue.receive() == []
    assert len(queue.dead_letters()) == 1


def test_an_id_that_penstock_made_is_known_as_well(queue: Queue) -> None:
    made = queue.send("first")
    assert queue.send("second", id=made) == made
    assert payloads(take_all(queue)) == ["first"]


def test_an_id_that_penstock_made_for_a_held_message_is_known_before_and_after_it_is_due(
    queue: Queue, clock: Clock
) -> None:
    made = queue.send("first", delay_seconds=13)
    assert queue.send("second", id=made) == made
    clock.advance(seconds=14)
    take(queue).ack()
    assert queue.send("third", id=made) == made
    assert queue.receive() == []


def test_the_same_id_with_its_live_address_is_the_same_send_and_no_duplicate(queue: Queue) -> None:
    queue.send(1, id=CHOSEN, address="desk")
    assert queue.send(1, id=CHOSEN, address="desk") == CHOSEN
    assert_books_balance(queue, sent=1)


def test_ids_belong_to_their_queue(store: Store) -> None:
    first, second = store.queue("first"), store.queue("second")
    assert first.send(1, id=CHOSEN) == second.send(2, id=CHOSEN) == CHOSEN
    assert payloads(take_all(first)) == [1]
    assert payloads(take_all(second)) == [2]


def test_a_chosen_id_that_ends_like_a_made_one_is_another_message(queue: Queue) -> None:
    made = queue.send("made")
    lookalike = str(uuid.UUID(int=uuid.UUID(made).int ^ 1 << 90))
    assert lookalike[-12:] == made[-12:]
    with pytest.raises(NotFound):
        queue.find(lookalike)
    assert queue.send("chosen", id=lookalike) == lookalike
    assert queue.find(lookalike).json() == "chosen"
    assert queue.find(made).json() == "made"
    assert ids(take_all(queue)) == [made, lookalike]


def test_an_id_of_another_queue_is_not_found_here(store: Store) -> None:
    made = store.queue("first").send("made")
    store.queue("second").send("other")
    with pytest.raises(NotFound):
        store.queue("second").find(made)


def test_an_id_past_retention_may_be_sent_anew(queue: Queue, store: Store, clock: Clock) -> None:
    queue.send("first", id=CHOSEN)
    take(queue).ack()
    store.sweep()
    clock.advance(seconds=7_003)
    store.sweep()
    assert queue.send("second", id=CHOSEN) == CHOSEN
    assert payloads(take_all(queue)) == ["second"]
