"""Groups: independent readers of one log."""

from __future__ import annotations

import pytest

from penstock import Event, NotFound, Queue, State, Store
from penstock.engines.contract import ATTEMPT
from tests.conformance.assertions import assert_books_balance, assert_trail_is_legal, payloads, take, take_all
from tests.conformance.clock import Clock


def test_every_group_reads_every_message(queue: Queue) -> None:
    queue.send_many([1, 2, 3])
    assert payloads(take_all(queue)) == [1, 2, 3]
    assert payloads(take_all(queue, group="billing")) == [1, 2, 3]
    assert payloads(take_all(queue, group="shipping")) == [1, 2, 3]


def test_the_primary_group_exists_from_the_first_send(queue: Queue) -> None:
    assert queue.groups() == []
    queue.send(1)
    assert queue.groups() == ["default"]
    assert queue.stats("default").available == 1


def test_another_group_exists_from_its_first_receive(queue: Queue) -> None:
    queue.send(1)
    take(queue, group="billing")
    assert queue.groups() == ["billing", "default"]


def test_a_new_group_starts_at_the_oldest_message_that_is_still_readable(queue: Queue) -> None:
    queue.send_many([1, 2])
    queue.ack_many(take_all(queue))
    queue.send(3)
    assert payloads(take_all(queue, group="late")) == [1, 2, 3]


def test_one_message_may_be_leased_in_two_groups_at_once(queue: Queue) -> None:
    queue.send(1)
    mine, theirs = take(queue), take(queue, group="billing")
    assert mine.id == theirs.id
    assert mine.token != theirs.token
    assert (mine.group, theirs.group) == ("default", "billing")
    theirs.ack()
    mine.ack()


def test_what_one_group_does_never_changes_another(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(1)
    take(queue, group="rejecting").reject("no")
    take(queue, group="acking").ack()
    take(queue, group="retrying").nak("busy", delay_seconds=19)
    assert take(queue).attempt == 1
    clock.advance(seconds=20)
    assert take(queue, group="retrying").attempt == 2
    for group in ("rejecting", "acking", "retrying", "default"):
        assert_trail_is_legal(queue, message_id, group)
        assert_books_balance(queue, sent=1, group=group)
    assert [dead.group for dead in queue.dead_letters()] == ["rejecting"]


def test_attempts_are_counted_for_each_group(queue: Queue) -> None:
    queue.send(1)
    for _ in range(3):
        take(queue, group="billing").nak("busy", delay_seconds=0)
    assert take(queue, group="billing").attempt == 4
    assert take(queue).attempt == 1


def test_stats_map_each_group_to_its_own_counts(queue: Queue) -> None:
    queue.send_many(list(range(5)))
    queue.ack_many(queue.receive(limit=2))
    queue.receive(limit=3, group="billing")
    stats = queue.stats()
    assert sorted(stats) == ["billing", "default"]
    assert (stats["default"].done, stats["default"].available, stats["default"].in_progress) == (2, 3, 0)
    assert (stats["billing"].done, stats["billing"].available, stats["billing"].in_progress) == (0, 2, 3)


def test_the_audit_says_which_group_did_what(queue: Queue) -> None:
    message_id = queue.send(1)
    take(queue, group="billing").ack()
    take(queue)
    steps = [(entry.event, entry.group) for entry in queue.audit(message_id)]
    assert steps == [
        (Event.SEND, None),
        (Event.RECEIVE, "billing"),
        (Event.ACK, "billing"),
        (Event.RECEIVE, "default"),
    ]


def test_groups_of_one_name_on_two_queues_are_two_groups(store: Store) -> None:
    first, second = store.queue("first"), store.queue("second")
    first.send(1)
    second.send(2)
    take(first, group="billing").ack()
    assert take(second, group="billing").json() == 2


def test_a_hundred_groups_read_one_log(queue: Queue) -> None:
    queue.send_many([1, 2])
    for number in range(100):
        assert payloads(take_all(queue, group=f"group {number}")) == [1, 2]
    assert len(queue.groups()) == 101


def test_an_outcome_is_kept_per_group(queue: Queue) -> None:
    message_id = queue.send(1)
    take(queue).ack("fine")
    take(queue, group="billing").reject("not fine")
    assert queue.archive()[0].outcome is State.SUCCEEDED
    archived = queue.archive(group="billing")[0]
    assert (archived.outcome, archived.reason, archived.message.id) == (State.REJECTED, "not fine", message_id)


def test_the_lag_is_how_many_messages_a_group_has_not_read(queue: Queue) -> None:
    queue.send_many(list(range(7)))
    queue.receive(limit=3)
    queue.receive(limit=5, group="billing")
    assert queue.stats("default").lag == 4
    assert queue.stats("billing").lag == 2


def test_a_receive_can_ask_that_its_group_is_there(queue: Queue) -> None:
    queue.send_many([1, 2])
    take(queue, group="billing")
    for _ in range(2):
        with pytest.raises(NotFound, match="shipping"):
            queue.engine.receive(queue.name, "shipping", "c", 1, 37, needs_group=True)
        with pytest.raises(NotFound, match="shipping"):
            queue.engine.receive_each(queue.name, "shipping", [("a", 1), ("b", 1)], 37, needs_group=True)
    assert queue.groups() == ["billing", "default"]
    [row] = queue.engine.receive(queue.name, "billing", "c", 5, 37, needs_group=True).rows
    assert row[ATTEMPT] == 1
    queue.engine.forget(queue.name, "billing")
    with pytest.raises(NotFound, match="billing"):
        queue.engine.receive(queue.name, "billing", "c", 1, 37, needs_group=True)
    assert queue.groups() == ["default"]


def test_a_receive_that_needs_its_group_makes_no_queue(store: Store) -> None:
    with pytest.raises(NotFound):
        store.engine.receive("unknown", "g", "c", 1, 37, needs_group=True)
    assert store.queues() == []
