"""dead_letters: messages that ended without success."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import InvalidInput, NotFound, Queue, Reject, State, Store
from tests.conformance.assertions import ids, take
from tests.conformance.clock import Clock


@pytest.fixture
def three_dead(queue: Queue, clock: Clock) -> list[str]:
    """Rejected, then failed, then expired in group default, at three different times."""
    queue.send(1)
    take(queue).reject("no")
    clock.advance(seconds=3)
    queue.send(2)
    for _ in range(4):
        take(queue).nak("broken", delay_seconds=0)
    clock.advance(seconds=5)
    queue.send(3, ttl_seconds=7)
    clock.advance(seconds=8)
    queue.store.sweep()
    return [dead.id for dead in queue.dead_letters()]


def test_dead_letters_come_newest_first(queue: Queue, three_dead: list[str]) -> None:
    dead = queue.dead_letters()
    assert [one.outcome for one in dead] == [State.EXPIRED, State.FAILED, State.REJECTED]
    assert [one.attempts for one in dead] == [0, 4, 1]
    assert [one.died_at for one in dead] == sorted((one.died_at for one in dead), reverse=True)


def test_a_dead_letter_has_everything_of_its_message(queue: Queue, clock: Clock) -> None:
    created_at = clock.now
    message_id = queue.send(b"\x00raw", headers={"a": "b"}, content_type="image/png")
    clock.advance(seconds=3)
    take(queue, group="billing").reject(KeyError("gone"))
    [dead] = queue.dead_letters()
    assert (dead.id, dead.queue, dead.group) == (message_id, "orders", "billing")
    assert (dead.payload, dead.headers, dead.content_type) == (b"\x00raw", {"a": "b"}, "image/png")
    assert (dead.outcome, dead.reason, dead.attempts) == (State.REJECTED, "KeyError: 'gone'", 1)
    assert (dead.created_at, dead.died_at) == (created_at, clock.now)


def test_a_limit_takes_the_newest(queue: Queue, three_dead: list[str]) -> None:
    assert ids(queue.dead_letters(limit=2)) == three_dead[:2]


def test_paging_goes_on_before_a_time(queue: Queue, three_dead: list[str]) -> None:
    first = queue.dead_letters(limit=1)
    assert ids(queue.dead_letters(before=first[0].died_at)) == three_dead[1:]


def test_paging_from_the_last_one_seen_walks_through_those_that_died_at_the_same_moment(queue: Queue) -> None:
    sent = queue.send_many(list(range(7)))
    queue.settle([Reject(delivery, "no") for delivery in queue.receive(limit=7)])
    for delivery in queue.receive(limit=4, group="billing"):
        delivery.reject("no")
    walked: list[tuple[str, str]] = []
    page = queue.dead_letters(limit=3)
    while page:
        walked += [(dead.group, dead.id) for dead in page]
        page = queue.dead_letters(limit=3, before=page[-1])
    assert len(walked) == len(set(walked))
    assert set(walked) == {*(("default", one) for one in sent), *(("billing", one) for one in sent[:4])}


@pytest.mark.parametrize(("outcome", "place"), [("expired", 0), ("failed", 1), ("rejected", 2)])
def test_an_outcome_picks_its_own(queue: Queue, three_dead: list[str], outcome: str, place: int) -> None:
    assert ids(queue.dead_letters(outcome=outcome)) == [three_dead[place]]


def test_no_dead_letter_has_succeeded(queue: Queue, three_dead: list[str]) -> None:
    assert queue.dead_letters(outcome="succeeded") == []


def test_a_group_picks_its_own(queue: Queue, three_dead: list[str]) -> None:
    queue.receive(group="billing")
    assert queue.dead_letters(group="billing") == []
    assert len(queue.dead_letters(group="default")) == 3


def test_a_misspelt_group_is_refused_with_a_suggestion(queue: Queue, three_dead: list[str]) -> None:
    with pytest.raises(NotFound, match="has no group 'defualt'; did you mean 'default'"):
        queue.dead_letters(group="defualt")


def test_one_message_may_be_dead_in_two_groups(queue: Queue) -> None:
    message_id = queue.send(1)
    take(queue).reject("mine")
    take(queue, group="billing").reject("theirs")
    assert {(dead.id, dead.group, dead.reason) for dead in queue.dead_letters()} == {
        (message_id, "default", "mine"),
        (message_id, "billing", "theirs"),
    }


def test_queues_keep_their_own_dead_letters(queue: Queue, store: Store) -> None:
    queue.send(1)
    take(queue).reject("no")
    other = store.queue("other")
    other.send(2)
    assert other.dead_letters() == []


@pytest.mark.parametrize(
    "options",
    [{"limit": 0}, {"limit": "all"}, {"outcome": "dead"}, {"outcome": ""}, {"before": "now"}, {"group": ""}],
    ids=str,
)
def test_bad_input_is_refused(queue: Queue, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        queue.dead_letters(**options)
