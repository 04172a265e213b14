"""find: a message by id, in any state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import InvalidInput, NotFound, Queue, Store
from tests.conformance.assertions import take

UNKNOWN = "7d444840-9dc0-11d1-b245-5ffdce74fad2"


def reject_and_redrive(queue: Queue) -> None:
    take(queue).reject("no")
    queue.redrive()


PLACES: dict[str, Callable[[Queue], Any]] = {
    "ready": lambda queue: None,
    "leased": lambda queue: take(queue),
    "waiting for a retry": lambda queue: take(queue).nak("busy"),
    "due for a retry": lambda queue: take(queue).nak("busy", delay_seconds=0),
    "rescheduled": lambda queue: take(queue).reschedule(71),
    "succeeded": lambda queue: take(queue).ack(),
    "dead": lambda queue: take(queue).reject("no"),
    "redriven": lambda queue: reject_and_redrive(queue),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("chosen", [None, UNKNOWN], ids=["made id", "chosen id"])
def test_a_message_is_found_wherever_it_is(queue: Queue, place: str, chosen: str | None) -> None:
    message_id = queue.send({"order": 1}, id=chosen, headers={"a": "b"}, priority=3, key="k")
    PLACES[place](queue)
    message = queue.find(message_id)
    assert (message.id, message.json(), message.headers) == (message_id, {"order": 1}, {"a": "b"})
    assert (message.priority, message.key) == (3, "k")


def test_a_held_message_is_found(queue: Queue) -> None:
    assert queue.find(queue.send(1, delay_seconds=13)).json() == 1
    assert queue.find(queue.batch("nightly").send(2)).batch == "nightly"


def test_an_unknown_id_is_not_found(queue: Queue, store: Store) -> None:
    queue.send(1)
    with pytest.raises(NotFound, match=UNKNOWN):
        queue.find(UNKNOWN)
    with pytest.raises(NotFound):
        store.queue("unknown").find(UNKNOWN)


@pytest.mark.parametrize("verb", ["find", "audit", "explain"])
@pytest.mark.parametrize("wrong", ["", "7", "not-a-uuid", 7, None, b"7d4448409dc011d1"])
def test_something_that_is_no_id_is_refused(queue: Queue, verb: str, wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="UUID"):
        getattr(queue, verb)(wrong)
