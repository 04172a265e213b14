"""producer: batched sends, without silent loss."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import DuplicateAddress, InvalidInput, Outgoing, PayloadTooLarge, Queue, Store, StoreUnavailable
from tests.conformance.assertions import assert_books_balance, payloads, take_all

LONG = 3_600  # longer than any test: only a full batch or a flush sends


def test_what_was_gathered_is_sent_at_the_end_of_the_block(queue: Queue) -> None:
    with queue.producer(batch_size=100, linger_seconds=LONG) as producer:
        for number in range(7):
            producer.send(number)
        assert queue.peek() == []
    assert payloads(take_all(queue)) == list(range(7))


def test_a_full_batch_is_sent_at_once(queue: Queue) -> None:
    with queue.producer(batch_size=5, linger_seconds=LONG) as producer:
        for number in range(12):
            producer.send(number)
        assert payloads(queue.peek(limit=100)) == list(range(10))
    assert payloads(take_all(queue)) == list(range(12))


def test_a_message_that_waited_long_enough_is_sent_without_more_to_come(live_queue: Queue) -> None:
    with live_queue.producer(batch_size=100, linger_seconds=0.01) as producer:
        producer.send("lonely")
        assert payloads(live_queue.receive(wait_seconds=30)) == ["lonely"]


def test_a_flush_sends_what_was_gathered_now(queue: Queue) -> None:
    with queue.producer(batch_size=100, linger_seconds=LONG) as producer:
        producer.send(1)
        producer.flush()
        assert payloads(take_all(queue)) == [1]
        producer.send(2)
    assert payloads(take_all(queue)) == [2]


def test_options_of_each_message_are_kept(queue: Queue) -> None:
    with queue.producer(batch_size=100, linger_seconds=LONG) as producer:
        producer.send("later", priority=3, headers={"a": "b"})
        producer.send(Outgoing(payload="sooner", priority=1))
    first, second = take_all(queue)
    assert (first.json(), second.json(), second.headers) == ("sooner", "later", {"a": "b"})


def test_a_bad_message_is_refused_at_once_and_the_others_are_sent(queue: Queue) -> None:
    with queue.producer(batch_size=100, linger_seconds=LONG) as producer:
        producer.send(1)
        with pytest.raises(InvalidInput, match="priority"):
            producer.send(2, priority=-1)
        producer.send(3)
    assert payloads(take_all(queue)) == [1, 3]


def test_a_send_that_fails_surfaces_at_the_end_of_the_block(store: Store) -> None:
    queue = store.queue("small", max_payload_bytes=8)
    with pytest.raises(PayloadTooLarge):
        with queue.producer(batch_size=100, linger_seconds=LONG) as producer:
            producer.send(b"123456789")
    assert_books_balance(queue, sent=0)


def test_a_message_that_is_refused_does_not_hinder_the_others(store: Store) -> None:
    queue = store.queue("small", max_payload_bytes=8)
    with queue.producer(batch_size=100, linger_seconds=LONG) as producer:
        gathered = [producer.send(b"%d" % number if number % 7 else b"123456789") for number in range(1, 51)]
        with pytest.raises(PayloadTooLarge):
            producer.flush()
        producer.flush()
        assert [one.is_sent for one in gathered] == [bool(number % 7) for number in range(1, 51)]
        assert [type(one.error) for one in gathered[6::7]] == [PayloadTooLarge] * 7
        producer.send(b"later")
    expected = [b"%d" % number for number in range(1, 51) if number % 7]
    assert [delivery.payload for delivery in take_all(queue)] == [*expected, b"later"]


def test_a_live_address_is_told_once_and_the_producer_goes_on(queue: Queue) -> None:
    existing = queue.send("first", address="a")
    producer = queue.producer(batch_size=3, linger_seconds=LONG)
    twice = producer.send("twice", address="a")
    others = [producer.send(number) for number in range(2)]
    assert all(one.is_sent for one in others), "a full batch is sent"
    with pytest.raises(DuplicateAddress) as told:
        producer.send("not taken")
    assert told.value.existing_id == existing
    assert (twice.is_sent, twice.error) == (False, told.value)
    for number in range(2, 7):
        producer.send(number)
    producer.close()
    assert payloads(take_all(queue)) == ["first", 0, 1, 2, 3, 4, 5, 6]


def test_ids_and_addresses_of_ones_own_are_kept(queue: Queue) -> None:
    chosen = "00000000-0000-4000-8000-000000000007"
    with queue.producer(batch_size=100, linger_seconds=LONG) as producer:
        for number in range(30):
            producer.send(number, id=chosen if number == 7 else None, address="b" if number == 9 else None)
    deliveries = take_all(queue)
    assert payloads(deliveries) == list(range(30))
    assert (deliveries[7].id, deliveries[9].address) == (chosen, "b")


def test_a_thousand_messages_arrive_in_order(queue: Queue) -> None:
    with queue.producer(batch_size=64, linger_seconds=LONG) as producer:
        for number in range(1_000):
            producer.send(number)
    assert payloads(take_all(queue)) == list(range(1_000))


@pytest.mark.parametrize("is_executed", [False, True])
def test_a_batch_is_sent_once_when_its_reply_or_itself_was_lost(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, is_executed: bool
) -> None:
    """Chaos, seed 5 on Redis: the first message alone was taken for the batch."""
    producer = queue.producer(batch_size=100, linger_seconds=LONG)
    for number in range(5):
        producer.send(number)
    real = queue.engine.send

    def lose(*values: Any, **options: Any) -> None:
        monkeypatch.undo()
        if is_executed:
            real(*values, **options)
        raise StoreUnavailable("the connection is gone")

    monkeypatch.setattr(queue.engine, "send", lose)
    with pytest.raises(StoreUnavailable):
        producer.flush()
    producer.close()
    assert payloads(take_all(queue)) == list(range(5))
    assert_books_balance(queue, sent=5)


def test_a_closed_producer_takes_nothing_more(queue: Queue) -> None:
    with queue.producer(batch_size=100, linger_seconds=LONG) as producer:
        producer.send(1)
    with pytest.raises(RuntimeError, match="closed"):
        producer.send(2)
    assert payloads(take_all(queue)) == [1]


@pytest.mark.parametrize(
    "options", [{"batch_size": 0}, {"batch_size": 1.5}, {"linger_seconds": -1}, {"linger_seconds": "soon"}], ids=str
)
def test_bad_options_are_refused(queue: Queue, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        queue.producer(**options)
