"""seek: moving a group's cursor."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from penstock import InvalidInput, Outgoing, Queue
from tests.conformance.clock import Clock
from tests.conformance.moves import payloads, take, take_all


def test_seeking_the_end_passes_everything_that_was_sent(queue: Queue) -> None:
    queue.send_many([1, 2, 3])
    queue.seek("default", "end")
    assert queue.receive() == []
    queue.send(4)
    assert payloads(take_all(queue)) == [4]


def test_seeking_the_start_makes_finished_messages_ready_again(queue: Queue) -> None:
    queue.send_many([1, 2, 3])
    queue.ack_many(take_all(queue))
    queue.seek("default", "start")
    deliveries = take_all(queue)
    assert payloads(deliveries) == [1, 2, 3]
    assert queue.ack_many(deliveries) == 3


def test_seeking_a_position_goes_on_behind_it(queue: Queue) -> None:
    sent = queue.send_many([1, 2, 3, 4])
    position = queue.find(sent[1]).position
    assert position is not None
    assert queue.seek("default", position) == position
    assert payloads(take_all(queue)) == [3, 4]


def test_seeking_a_time_goes_on_with_the_first_message_sent_then(queue: Queue, clock: Clock) -> None:
    queue.send("early")
    clock.advance(seconds=60)
    moment = clock.now - timedelta(seconds=10)
    queue.send("late")
    queue.ack_many(take_all(queue))
    queue.seek("default", moment)
    assert payloads(take_all(queue)) == ["late"]


def test_a_seek_may_make_a_group_that_starts_at_the_end(queue: Queue) -> None:
    queue.send_many([1, 2])
    queue.seek("fresh", "end")
    assert queue.receive(group="fresh") == []
    queue.send(3)
    assert payloads(take_all(queue, group="fresh")) == [3]


def test_a_seek_leaves_other_groups_where_they_are(queue: Queue) -> None:
    queue.send_many([1, 2])
    queue.seek("billing", "end")
    assert payloads(take_all(queue)) == [1, 2]


def test_a_leased_message_is_not_doubled_by_a_seek(queue: Queue, clock: Clock) -> None:
    queue.send_many([1, 2, 3])
    leased = take(queue)
    queue.seek("default", "start")
    assert payloads(take_all(queue)) == [2, 3]
    leased.ack()


def test_a_message_waiting_for_a_retry_is_not_doubled_by_a_seek(queue: Queue, clock: Clock) -> None:
    queue.send_many([1, 2])
    take(queue).nak("busy", delay_seconds=5)
    queue.seek("default", "start")
    assert payloads(take_all(queue)) == [2]
    clock.advance(seconds=6)
    assert payloads(take_all(queue)) == [1]


def test_a_seek_moves_every_priority(queue: Queue) -> None:
    queue.send_many([Outgoing(payload=n, priority=n % 3) for n in range(6)])
    queue.ack_many(take_all(queue))
    queue.seek("default", "start")
    assert payloads(take_all(queue)) == [0, 3, 1, 4, 2, 5]
    queue.seek("default", "end")
    assert queue.receive() == []


def test_seeking_the_end_shows_no_lag(queue: Queue) -> None:
    queue.send_many([1, 2, 3])
    queue.seek("default", "end")
    stats = queue.stats("default")
    assert (stats.lag, stats.available) == (0, 0)


def test_seeking_back_shows_the_lag_again(queue: Queue) -> None:
    queue.send_many([1, 2, 3])
    queue.ack_many(take_all(queue))
    queue.seek("default", "start")
    stats = queue.stats("default")
    assert (stats.lag, stats.available) == (3, 3)


@pytest.mark.parametrize(
    "target",
    ["middle", "", -1, 1 << 40, 1 << 49, 2.5, None, True, datetime(2026, 3, 5)],
    ids=str,
)
def test_a_bad_target_is_refused_and_the_cursor_stays(queue: Queue, target: Any) -> None:
    queue.send_many([1, 2])
    take(queue)
    with pytest.raises(InvalidInput):
        queue.seek("default", target)
    assert payloads(take_all(queue)) == [2]
