"""Retention gives disk back: segments are used in turn and truncated whole, and nobody who sends has to wait for it."""

from __future__ import annotations

import os
import threading

import psycopg
import pytest

import penstock
from penstock import Queue, Store
from tests.conformance.clock import Clock
from tests.postgres.passing_time.history import HISTORY

SIZE = 2000
COUNT = 400


def fill(queue: Queue) -> list[str]:
    """Messages that do not shrink when they are stored; all but the last are finished."""
    ids = queue.send_many([os.urandom(SIZE) for _ in range(COUNT)])
    queue.ack_many(queue.receive(limit=COUNT - 1))
    return ids


def pass_time(store: Store, clock: Clock, seconds: float) -> None:
    clock.advance(seconds=seconds)
    store.sweep()


def size(watcher: psycopg.Connection, segment: int) -> int:
    row = watcher.execute(
        "select sum(pg_total_relation_size(format('penstock.%%s_%%s', name, %s::int)::regclass)) "
        "from unnest('{log,claim,step}'::text[]) as name",
        [segment],
    ).fetchone()
    assert row is not None
    return int(row[0])


def test_a_segment_of_which_nothing_is_needed_gives_its_room_back(
    store: Store, queue: Queue, clock: Clock, watcher: psycopg.Connection
) -> None:
    empty = size(watcher, 1)
    fill(queue)
    queue.ack_many(queue.receive())
    full = size(watcher, 1)
    assert full > COUNT * SIZE
    pass_time(store, clock, HISTORY * 0.6)
    assert store.queue("orders").archive(limit=1), "history has not ended"
    fill(queue)
    assert size(watcher, 2) > COUNT * SIZE, "half a history later the next segment is written"
    assert size(watcher, 1) >= full
    for _ in range(4):
        pass_time(store, clock, HISTORY * 0.6)
    assert size(watcher, 1) <= empty, "no VACUUM FULL was needed"
    assert len(queue.receive()) == 1, "what was live is still there"
    assert queue.stats("default").done == 2 * COUNT - 1


def test_all_segments_are_used_in_turn_and_the_room_does_not_grow(
    store: Store, queue: Queue, clock: Clock, watcher: psycopg.Connection
) -> None:
    sizes = []
    for _ in range(12):
        queue.send_many([os.urandom(SIZE) for _ in range(COUNT // 4)])
        queue.ack_many(queue.receive(limit=COUNT))
        pass_time(store, clock, HISTORY * 0.6)
        sizes.append(sum(size(watcher, segment) for segment in range(5)))
    assert max(sizes[6:]) <= 1.2 * max(sizes[:6])
    assert queue.stats("default").done == 12 * (COUNT // 4)


def test_what_is_still_needed_is_carried_over_with_its_trail(
    store: Store, queue: Queue, clock: Clock, watcher: psycopg.Connection
) -> None:
    queue.receive(group="slow")
    ids = fill(queue)
    [retry] = queue.receive()
    retry.nak("later", delay_seconds=20 * HISTORY)
    (unread,) = [message.id for message in queue.peek(1, group="slow")]
    trail = [(entry.event, entry.state, entry.group) for entry in queue.audit(ids[-1])]
    for _ in range(3):
        queue.ack_many(queue.receive(group="slow", limit=COUNT // 2 - 1))
        pass_time(store, clock, HISTORY * 0.6)
        queue.send(b"goes on")
        queue.ack_many(queue.receive())
    queue.seek("slow", "end")
    for _ in range(6):
        pass_time(store, clock, HISTORY * 0.6)
    assert size(watcher, 1) < COUNT * SIZE
    assert [(entry.event, entry.state, entry.group) for entry in queue.audit(ids[-1])][: len(trail)] == trail
    with pytest.raises(penstock.NotFound):
        queue.find(unread)
    clock.advance(seconds=20 * HISTORY)
    assert [delivery.id for delivery in queue.receive()] == [ids[-1]]


def test_whoever_reads_an_old_segment_delays_its_end_and_nothing_is_lost(
    store: Store, queue: Queue, clock: Clock, watcher: psycopg.Connection, other: psycopg.Connection
) -> None:
    fill(queue)
    pass_time(store, clock, HISTORY * 0.6)
    queue.send(b"in the next one")
    other.execute("select count(*) from penstock.log")
    for _ in range(4):
        pass_time(store, clock, HISTORY * 0.6)
    assert size(watcher, 1) > COUNT * SIZE
    other.rollback()
    for _ in range(3):
        pass_time(store, clock, HISTORY * 0.6)
    assert size(watcher, 1) < COUNT * SIZE
    assert len(queue.receive(limit=10)) == 2


def test_nobody_who_sends_waits_for_segments_to_be_truncated(
    store: Store, queue: Queue, clock: Clock, postgres_url: str, other: psycopg.Connection, watcher: psycopg.Connection
) -> None:
    """A sender that would have to wait for a lock for longer than 100 ms gets an error."""
    sent, over, errors = [0], threading.Event(), list[psycopg.Error]()

    def send() -> None:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("set lock_timeout = '100ms'")
            connection.execute("select set_config('penstock.now', %s, false)", [str(clock())])
            while not over.is_set():
                try:
                    connection.execute("select penstock.append('orders', array['x'::bytea])")
                except psycopg.Error as error:
                    errors.append(error)
                    return
                sent[0] += 1

    queue.send(b"first")
    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    truncated = 0
    for turn in range(12):
        queue.ack_many(queue.receive(limit=10_000))
        if turn % 3 == 1:
            # Somebody reads all segments meanwhile: truncating waits for them, and sending must not wait for that.
            other.execute("select count(*) from penstock.log")
        before = [size(watcher, segment) for segment in range(1, 5)]
        pass_time(store, clock, HISTORY * 0.6)
        truncated += sum(size(watcher, segment) < was for segment, was in enumerate(before, 1))
        other.rollback()
    over.set()
    sender.join()
    assert not errors
    assert sent[0] > 20
    assert truncated >= 3


def test_a_group_that_is_far_behind_keeps_only_what_it_has_not_read(
    store: Store, queue: Queue, clock: Clock, other: psycopg.Connection
) -> None:
    queue.send_many([b"%d" % number for number in range(100)])
    store.sweep()
    queue.send_many([b"%d" % number for number in range(100, 1300)])
    queue.ack_many(queue.receive(limit=100))
    for _ in range(3):
        # As in a long time in which other queues are sent to.
        other.execute("select nextval('penstock.position'), penstock._note_moment() from generate_series(1, 1100)")
        other.commit()
        store.sweep()
    pass_time(store, clock, HISTORY + 1)
    assert queue.archive() == []
    assert [delivery.payload for delivery in queue.receive()] == [b"100"]
    row = other.execute("select count(*) from penstock.moment").fetchone()
    assert row is not None
    assert row[0] < 2 * 1100
