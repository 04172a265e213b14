"""archive: finished messages, still readable until retention ends."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import InvalidInput, Queue, State
from tests.conformance.assertions import take, take_all
from tests.conformance.clock import Clock


def archived_ids(queue: Queue, **options: Any) -> list[str]:
    return [archived.message.id for archived in queue.archive(**options)]


def test_a_finished_message_is_archived_with_how_it_ended(queue: Queue, clock: Clock) -> None:
    message_id = queue.send({"order": 1}, headers={"a": "b"}, priority=3)
    take(queue).nak("busy", delay_seconds=0)
    clock.advance(seconds=5)
    take(queue).ack("printed")
    [archived] = queue.archive()
    assert (archived.message.id, archived.message.json()) == (message_id, {"order": 1})
    assert (archived.message.headers, archived.message.priority) == ({"a": "b"}, 3)
    assert (archived.group, archived.outcome, archived.reason) == ("default", State.SUCCEEDED, "printed")
    assert (archived.attempts, archived.finished_at) == (2, clock.now)


def test_live_messages_are_not_archived(queue: Queue) -> None:
    queue.send_many(["ready", "leased", "retried"])
    queue.receive(limit=2)[1].nak("busy")
    queue.send("held", delay_seconds=13)
    assert queue.archive() == []


def test_the_latest_position_comes_first(queue: Queue) -> None:
    sent = queue.send_many([1, 2, 3])
    first, second, third = take_all(queue)
    second.ack()
    third.ack()
    first.ack()
    assert archived_ids(queue) == sent[::-1]


def test_dead_letters_are_archived_too(queue: Queue) -> None:
    sent = queue.send_many([1, 2])
    first, second = take_all(queue)
    first.reject("no")
    second.ack()
    assert [(one.message.id, one.outcome, one.reason) for one in queue.archive()] == [
        (sent[1], State.SUCCEEDED, None),
        (sent[0], State.REJECTED, "no"),
    ]


def test_whole_receives_are_archived_message_by_message(queue: Queue, clock: Clock) -> None:
    sent = queue.send_many(list(range(20)))
    deliveries = queue.receive(limit=20)
    clock.advance(seconds=3)
    queue.ack_many(deliveries)
    archived = queue.archive()
    assert [one.message.id for one in archived] == sent[::-1]
    assert {(one.outcome, one.attempts, one.finished_at) for one in archived} == {(State.SUCCEEDED, 1, clock.now)}


def test_limits_and_paging_walk_through_the_whole_archive(queue: Queue) -> None:
    sent = queue.send_many(list(range(10)))
    queue.ack_many(take_all(queue))
    walked: list[str] = []
    before: int | None = None
    while page := queue.archive(limit=3, before=before):
        assert len(page) <= 3
        walked += [archived.message.id for archived in page]
        before = page[-1].message.position
    assert walked == sent[::-1]


def test_an_outcome_picks_its_own(queue: Queue) -> None:
    sent = queue.send_many(list(range(6)))
    for place, delivery in enumerate(take_all(queue)):
        delivery.ack() if place % 2 else delivery.reject("no")
    assert archived_ids(queue, outcome="succeeded") == [sent[5], sent[3], sent[1]]
    assert archived_ids(queue, outcome="rejected", limit=2) == [sent[4], sent[2]]
    assert queue.archive(outcome="failed") == []


def test_every_group_has_its_own_archive(queue: Queue) -> None:
    sent = queue.send_many([1, 2])
    take(queue).ack()
    queue.ack_many(take_all(queue, group="billing"))
    assert archived_ids(queue) == sent[:1]
    assert archived_ids(queue, group="billing") == sent[::-1]


def test_a_redriven_message_leaves_the_archive_and_comes_back(queue: Queue) -> None:
    message_id = queue.send(1)
    take(queue).reject("no")
    queue.redrive()
    assert queue.archive() == []
    take(queue).ack()
    [archived] = queue.archive()
    assert (archived.message.id, archived.outcome) == (message_id, State.SUCCEEDED)


@pytest.mark.parametrize(
    "options", [{"limit": 0}, {"outcome": "done"}, {"group": ""}, {"before": "last"}, {"before": -1}], ids=str
)
def test_bad_input_is_refused(queue: Queue, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        queue.archive(**options)
