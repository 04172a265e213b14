"""seek: moving a group's cursor."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from penstock import Event, InvalidInput, Outgoing, Queue, State
from tests.conformance.assertions import assert_books_balance, assert_trail_is_legal, payloads, take, take_all, trail
from tests.conformance.clock import START, Clock


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


@pytest.mark.parametrize("ending", ["ack", "reject", "nak"])
def test_seeking_again_includes_what_ended_after_it_was_leased_during_a_seek(queue: Queue, ending: str) -> None:
    ids = queue.send_many([1, 2, 3, 4])
    first, second = queue.receive(limit=2)
    queue.seek("default", "start")
    # Ahead of the cursor, which has not moved since: one ends, one is still leased.
    getattr(first, ending)()
    again = 0 if ending == "nak" else 1
    assert queue.preview_seek("default", "start").read_again == again
    queue.seek("default", "start")
    assert sorted(payloads(queue.peek())) == ([1, 3, 4] if again else [3, 4])
    second.ack()
    queue.seek("default", "start")
    assert sorted(payloads(queue.peek())) == ([1, 2, 3, 4] if again else [2, 3, 4])
    assert queue.dead_letters() == []
    for message_id in ids:
        assert_trail_is_legal(queue, message_id)
    assert_books_balance(queue, 4)
    assert queue.ack_many(take_all(queue)) == (4 if again else 3)


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


def test_a_time_is_found_though_held_messages_joined_the_log_late(queue: Queue, clock: Clock) -> None:
    queue.send("born first, held long", delay_seconds=25)
    for name in ("at 10", "at 20"):
        clock.advance(seconds=10)
        queue.send(name)
    clock.advance(seconds=10)
    queue.store.sweep()
    for name in ("at 30", "at 40"):
        queue.send(name)
        clock.advance(seconds=10)
    queue.ack_many(take_all(queue))
    queue.seek("default", START + timedelta(seconds=15))
    assert payloads(take_all(queue)) == ["at 20", "born first, held long", "at 30", "at 40"]


def test_a_time_is_found_though_the_log_was_trimmed_before_it(queue: Queue, clock: Clock) -> None:
    queue.send_many(list(range(100)))
    queue.ack_many(take_all(queue))
    queue.store.sweep()
    clock.advance(seconds=7_003)
    queue.store.sweep()
    queue.send("early")
    clock.advance(seconds=10)
    moment = clock.now
    clock.advance(seconds=10)
    queue.send("late")
    queue.ack_many(take_all(queue))
    queue.seek("default", moment)
    assert payloads(take_all(queue)) == ["late"]


def test_what_a_seek_made_ready_again_has_not_ended_any_more(queue: Queue) -> None:
    sent = queue.send_many(list(range(5)))
    for place, delivery in enumerate(take_all(queue)):
        delivery.ack() if place % 2 else delivery.reject("no")
    queue.seek("default", "start")
    assert assert_books_balance(queue, sent=5).available == 5
    assert queue.dead_letters() == []
    assert queue.archive() == []
    queue.ack_many(take_all(queue))
    assert assert_books_balance(queue, sent=5).done == 5
    for message_id in sent:
        assert_trail_is_legal(queue, message_id)


def test_seeking_back_and_forth_leaves_the_books_of_what_was_read_in_balance(queue: Queue) -> None:
    sent = queue.send_many(list(range(6)))
    queue.ack_many(queue.receive(limit=4))
    queue.seek("default", "start")
    queue.ack_many(queue.receive(limit=2))
    queue.seek("default", "start")
    queue.ack_many(take_all(queue))
    assert assert_books_balance(queue, sent=6).done == 6
    for message_id in sent:
        assert_trail_is_legal(queue, message_id)


def test_a_message_with_an_address_that_the_primary_group_passes_by_has_ended(queue: Queue) -> None:
    message_id = queue.send(1, address="desk")
    queue.seek("default", "end")
    assert trail(queue, message_id)[-1] == (Event.SEEK, State.CANCELLED)
    queue.send(2, address="desk")
    assert payloads(take_all(queue)) == [2]


def test_a_batch_whose_members_the_primary_group_passes_by_ends(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send_many([1, 2])
    batch.set_end("end")
    batch.start()
    queue.seek("default", "end")
    assert batch.state == "finished"
    assert payloads(take_all(queue)) == ["end"]


def test_an_ordered_queue_is_read_again_in_order(queue: Queue) -> None:
    line = queue.store.queue("line", ordered=True)
    line.send_many([1, 2, 3])
    line.ack_many(take_all(line))
    line.seek("default", "start")
    assert payloads(take_all(line)) == [1, 2, 3]


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


def test_invalid_seek_target_lists_the_valid_ones(queue: Queue) -> None:
    wrong: list[Any] = ["middle", 2.5, None, True]
    for target in wrong:
        with pytest.raises(InvalidInput, match="a position, a time, 'start' or 'end', not"):
            queue.seek("default", target)


def test_unread_messages_lie_behind_the_first_that_was_not_read(queue: Queue) -> None:
    engine = queue.engine
    assert engine.unread_after("nowhere") == {}
    sent = [queue.send(number, priority=number % 2) for number in range(6)]
    places = [queue.find(one).position or 0 for one in sent]
    queue.ack_many(queue.receive(limit=1, group="b"))
    assert engine.unread_after("orders") == {"default": places[0] - 1, "b": places[0]}
    queue.receive(limit=2, group="b")  # the rest of the better priority: of the others the first is unread
    assert engine.unread_after("orders")["b"] == places[0]
    queue.seek("b", places[3])
    assert engine.unread_after("orders") == {"default": places[0] - 1, "b": places[3]}
    queue.seek("b", "end")
    assert engine.unread_after("orders")["b"] == engine.last_position("orders")
    later = queue.send(6)
    assert engine.unread_after("orders")["b"] == (queue.find(later).position or 0) - 1
    queue.seek("b", places[1])
    assert engine.unread_after("orders")["b"] == places[1]
    engine.advance("orders", "stream", engine.horizon("orders"))
    assert "stream" not in engine.unread_after("orders")
