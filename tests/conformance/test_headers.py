"""Headers: a map of strings to strings that travels with the message."""

from __future__ import annotations

import pytest

from penstock import InvalidInput, Queue
from tests.conformance.assertions import take
from tests.conformance.clock import Clock

HEADERS = {
    "none": {},
    "one": {"trace": "17"},
    "empty strings": {"": ""},
    "order": {"z": "1", "a": "2", "m": "3"},
    "odd characters": {"a\x00b": "c\x00d", "line": "one\ntwo", "quote": "\"'`", "käse": "📦"},
    "many": {f"name {number}": "x" * 100 for number in range(300)},
}


@pytest.mark.parametrize("headers", HEADERS.values(), ids=list(HEADERS))
def test_headers_come_back_as_they_were_everywhere(queue: Queue, headers: dict[str, str]) -> None:
    message_id = queue.send(1, headers=headers)
    assert queue.find(message_id).headers == headers
    assert queue.peek()[0].headers == headers
    delivery = take(queue)
    assert list(delivery.headers.items()) == list(headers.items())
    delivery.reject("no")
    assert queue.dead_letters()[0].headers == headers
    assert queue.archive()[0].message.headers == headers
    queue.redrive()
    assert take(queue).headers == headers


def test_headers_of_a_held_message_come_back(queue: Queue, clock: Clock) -> None:
    queue.send(1, delay_seconds=13, headers={"trace": "17"})
    clock.advance(seconds=14)
    assert take(queue).headers == {"trace": "17"}


def test_changing_what_was_read_changes_nothing(queue: Queue) -> None:
    headers = {"trace": "17"}
    message_id = queue.send(1, headers=headers)
    headers["trace"] = "18"
    delivery = take(queue)
    delivery.headers["trace"] = "19"
    assert delivery.headers == {"trace": "17"}
    assert queue.find(message_id).headers == {"trace": "17"}


def test_headers_have_room_for_64_kibibytes_and_no_more(queue: Queue) -> None:
    room = 64 * 1024 - len('{"a":""}')
    queue.send(1, headers={"a": "x" * room})
    with pytest.raises(InvalidInput, match="headers"):
        queue.send(1, headers={"a": "x" * (room + 1)})
    assert len(take(queue).headers["a"]) == room
