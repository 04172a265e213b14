"""send_many: many messages, all or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock import DuplicateAddress, InvalidInput, Outgoing, PayloadTooLarge, Queue, Store
from tests.conformance.assertions import assert_books_balance, ids, payloads, take_all


def test_ids_come_back_in_the_order_given(queue: Queue) -> None:
    sent = queue.send_many([{"n": 1}, b"2", Outgoing(payload=3)])
    assert len(set(sent)) == 3
    assert ids(take_all(queue)) == sent
    assert [queue.find(message_id).payload for message_id in sent] == [b'{"n":1}', b"2", b"3"]


def test_each_outgoing_keeps_its_own_options(queue: Queue) -> None:
    sent = queue.send_many([Outgoing(payload=b"late", priority=2), Outgoing(payload=b"soon", priority=1), b"now"])
    assert ids(take_all(queue)) == [sent[2], sent[1], sent[0]]


@pytest.mark.parametrize("shards", [1, 4])
def test_a_first_message_with_options_and_plain_ones_after_it_go_in_together(store: Store, shards: int) -> None:
    queue = store.queue("mixed", shards=shards)
    first = Outgoing(payload="first", id="00000000-0000-7000-8000-000000000001", headers={"a": "b"})
    ids = queue.send_many([first, *range(20)])
    assert ids[0] == first.id
    assert len(set(ids)) == 21
    received = {delivery.id: delivery for delivery in queue.receive(limit=30)}
    assert [received[one].payload for one in ids] == [b'"first"', *(b"%d" % number for number in range(20))]
    assert received[ids[0]].headers == {"a": "b"}
    if shards == 1:
        assert list(received) == ids


def test_plain_messages_after_a_refused_first_one_are_not_sent(queue: Queue) -> None:
    queue.send("owner", address="taken")
    with pytest.raises(DuplicateAddress):
        queue.send_many([Outgoing(payload="first", address="taken"), "second", "third"])
    assert payloads(take_all(queue)) == ["owner"]


def test_sending_nothing_sends_nothing(store: Store) -> None:
    assert store.queue("untouched").send_many([]) == []
    assert store.queues() == []


def test_a_generator_is_taken_to_its_end(queue: Queue) -> None:
    def numbers() -> Iterator[int]:
        yield from range(13)

    assert len(queue.send_many(numbers())) == 13
    assert payloads(take_all(queue)) == list(range(13))


def test_five_thousand_messages_are_sent_and_received_in_order(queue: Queue) -> None:
    sent = queue.send_many([b"%d" % number for number in range(5_000)])
    received = [queue.receive(limit=1_700) for _ in range(3)]
    assert [len(part) for part in received] == [1_700, 1_700, 1_600]
    assert [delivery.id for part in received for delivery in part] == sent


def test_one_payload_that_is_too_large_stops_the_whole_send(store: Store) -> None:
    queue = store.queue("small", max_payload_bytes=19)
    with pytest.raises(PayloadTooLarge):
        queue.send_many([b"x" * 19, b"x" * 20, b"y"])
    assert queue.peek() == []
    assert_books_balance(queue, sent=0)


def test_one_bad_item_stops_the_whole_send(queue: Queue) -> None:
    with pytest.raises(InvalidInput, match="priority"):
        queue.send_many([b"good", Outgoing(payload=b"bad", priority=-1)])
    assert queue.peek() == []


def test_one_taken_address_stops_the_whole_send(queue: Queue) -> None:
    taken = queue.send(1, address="desk")
    with pytest.raises(DuplicateAddress) as caught:
        queue.send_many([b"good", Outgoing(payload=b"second", address="desk")])
    assert caught.value.existing_id == taken
    assert_books_balance(queue, sent=1)


def test_an_address_given_twice_in_one_send_stops_it(queue: Queue) -> None:
    with pytest.raises(DuplicateAddress):
        queue.send_many([Outgoing(payload=1, address="desk"), Outgoing(payload=2, address="desk")])
    assert queue.peek() == []
    queue.send(3, address="desk")


def test_held_and_ready_messages_of_one_send_keep_their_ids(queue: Queue) -> None:
    sent = queue.send_many([b"now", Outgoing(payload=b"later", delay_seconds=5), b"also now"])
    assert [queue.find(message_id).payload for message_id in sent] == [b"now", b"later", b"also now"]
    assert ids(take_all(queue)) == [sent[0], sent[2]]


@pytest.mark.parametrize("lone", ["text", b"bytes", {"order": 1}, 7, Outgoing(payload=1)], ids=str)
def test_a_lone_payload_is_not_taken_for_several(queue: Queue, lone: Any) -> None:
    with pytest.raises(InvalidInput, match="send_many takes a list of messages"):
        queue.send_many(lone)
    with pytest.raises(InvalidInput, match="send_many takes a list of messages"):
        queue.batch("nightly").send_many(lone)
    assert_books_balance(queue, sent=0)
