"""Overlapping calls: one that waited uses the state that the other has committed."""

from __future__ import annotations

import psycopg
import pytest

import penstock
from penstock import Queue
from tests.conformance.clock import Clock
from tests.engines.postgres.fixtures import Begin


def hold_lanes(other: psycopg.Connection) -> None:
    """Blocks receives from the queue until this transaction ends."""
    other.execute("select penstock._lock_lanes(q, null) from penstock.queue as q where name = 'orders'")


def test_a_lease_that_was_settled_meanwhile_is_not_extended(
    queue: Queue, other: psycopg.Connection, begin: Begin
) -> None:
    queue.send_many([b"1", b"2", b"3"])
    first, second, _ = queue.receive(limit=3)
    other.execute(
        "select penstock.settle('orders', 'default', '{ack}', %s, %s, '{null}', '{null}')",
        ([first.token], [first.position]),
    )
    leases = [(one.token, one.position) for one in (first, second)]
    begun = begin(lambda: queue.engine.extend("orders", "default", leases, 60))
    other.commit()
    lost, end = begun.result(60)
    assert lost is None
    assert end is not None
    second.ack()
    assert queue.stats("default").in_progress == 1


def test_a_receive_with_a_lower_token_leaves_what_a_later_one_gave_back(
    queue: Queue, other: psycopg.Connection
) -> None:
    """It began before the other, and came to the message after it: the tokens of a message grow all the same."""
    queue.send(b"1")
    (delivery,) = queue.receive()
    delivery.nak(delay_seconds=0)

    def retake(token: int) -> list[int]:
        taken = other.execute(
            """
            select d.attempt
            from penstock._find_receiver('orders', null, 'early', 10, 60, false) as r
            cross join lateral jsonb_populate_record(
                r, jsonb_build_object('token', %s::bigint, 'now', penstock.now_us())
            ) as numbered
            cross join lateral penstock._receive_retries(numbered, 100, 10) as d
            """,
            (token,),
        )
        return [row[0] for row in taken.fetchall()]

    assert retake(delivery.token - 1) == []
    assert retake(delivery.token) == []
    assert retake(delivery.token + 1) == [2]


def test_a_receive_that_waited_for_another_takes_nothing_twice(
    queue: Queue, other: psycopg.Connection, begin: Begin
) -> None:
    queue.send_many([b"1", b"2", b"3"])
    queue.ack_many(queue.receive())
    hold_lanes(other)
    begun = begin(queue.receive)
    taken = other.execute("select payload from penstock.receive('orders')").fetchall()
    other.commit()
    assert [row[0] for row in taken] == [b"2"]
    assert [delivery.payload for delivery in begun.result(60)] == [b"3"]


@pytest.mark.parametrize("priorities", [(0, 0, 0), (0, 0, 1)], ids=["one lane", "two lanes"])
@pytest.mark.parametrize("group", ["default", "another"])
def test_a_receive_that_waited_for_a_trim_hands_out_nothing_of_it(
    queue: Queue, other: psycopg.Connection, begin: Begin, priorities: tuple[int, ...], group: str
) -> None:
    for number, priority in enumerate(priorities):
        queue.send(number, priority=priority)
    queue.receive(group=group)
    other.execute("select penstock.trim('orders', keep => 1)")
    begun = begin(lambda: queue.receive(limit=10, group=group))
    other.commit()
    assert [delivery.json() for delivery in begun.result(60)] == [2]
    stats = queue.stats(group)
    assert (stats.available, stats.in_progress, stats.lag, stats.outcomes["cancelled"]) == (0, 1, 0, 2)


def test_a_group_that_begins_while_messages_are_removed_begins_without_them(
    queue: Queue, other: psycopg.Connection, begin: Begin
) -> None:
    first, *_ = queue.send_many([b"1", b"2", b"3"])
    other.execute("select penstock.remove('orders', %s)", ([first],))
    other.execute("select penstock.trim('orders', keep => 1)")
    begun = begin(lambda: queue.receive(limit=10, group="new"))
    other.commit()
    # It waits a tenth of a second at most, which a busy machine may need to commit: then it has received nothing.
    received = begun.result(60) or queue.receive(limit=10, group="new")
    assert [delivery.payload for delivery in received] == [b"3"]
    assert queue.stats("new").lag == 0


def test_what_was_sent_before_a_trim_and_commits_after_it_is_not_lost(queue: Queue, other: psycopg.Connection) -> None:
    """Positions are given out before commits: the log must not begin behind one that is still to come (law 1)."""
    queue.send(b"0")
    queue.send(b"late", transaction=other)
    queue.send_many([b"1", b"2", b"3"])
    assert queue.trim(keep=1) == 3
    assert queue.trim(keep=1) == 0
    other.commit()
    assert sorted(delivery.payload for delivery in queue.receive(limit=10)) == [b"3", b"late"]
    stats = queue.stats("default")
    assert (stats.lag, stats.in_progress, stats.outcomes["cancelled"]) == (0, 2, 3)


def test_a_registration_gives_the_place_that_it_took(postgres_url: str, queue: Queue) -> None:
    queue.register("adam")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        call = "select name, group_name, index, living from penstock.register('orders', 'default', 'eve', 5)"
        assert connection.execute(call).fetchall() == [("eve", "default", 1, 2)]
        call = "select name, index, living from penstock.heartbeat('orders', 'default', 'adam')"
        assert connection.execute(call).fetchall() == [("adam", 0, 2)]


@pytest.mark.parametrize("ordered", [False, True])
def test_a_receive_during_a_sweep_passes_by_what_the_sweep_takes_back(
    postgres_url: str, other: psycopg.Connection, ordered: bool
) -> None:
    """It waits for nobody; an ordered queue keeps its order and returns nothing."""
    clock = Clock()
    with penstock.connect(postgres_url, clock=clock) as store:
        queue = store.queue("orders", ordered=ordered)
        queue.send_many([b"lapsed", b"fresh"])
        queue.receive(lease_seconds=5)
        clock.advance(seconds=6)
        other.execute("select set_config('penstock.now', %s, true)", [str(clock())])
        other.execute("select penstock.sweep()")
        assert [one.payload for one in queue.receive()] == ([] if ordered else [b"fresh"])
        other.commit()
        assert [(one.payload, one.attempt) for one in queue.receive()] == [(b"lapsed", 2)]
