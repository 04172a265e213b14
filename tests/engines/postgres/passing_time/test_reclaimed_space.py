"""Retention deletes the rows of a queue that nothing needs any more, and vacuum gives their room to later rows."""

from __future__ import annotations

import os
import threading

import psycopg
import pytest

from penstock import Queue, Store
from penstock.domain.errors import RangeTrimmed
from tests.conformance.clock import Clock
from tests.engines.postgres.passing_time.history import HISTORY

SIZE = 2000
COUNT = 400
TABLES = ("log", "cursor", "audit")


def fill(queue: Queue) -> list[str]:
    """Messages that do not shrink when they are stored; all but the last are finished."""
    ids = queue.send_many([os.urandom(SIZE) for _ in range(COUNT)])
    queue.ack_many(queue.receive(limit=COUNT - 1))
    return ids


def pass_time(store: Store, clock: Clock, seconds: float) -> None:
    clock.advance(seconds=seconds)
    store.sweep()


def end_history(store: Store, clock: Clock) -> None:
    """Record what is finished now, and let its history pass."""
    store.sweep()
    pass_time(store, clock, HISTORY + 1)


def rows(watcher: psycopg.Connection) -> dict[str, int]:
    """How many rows each table has."""
    counts = {}
    for table in TABLES:
        row = watcher.execute(f"select count(*) from penstock.{table}".encode()).fetchone()
        assert row is not None
        counts[table] = int(row[0])
    return counts


def size(watcher: psycopg.Connection) -> int:
    row = watcher.execute(
        "select sum(pg_total_relation_size(('penstock.' || name)::regclass)) from unnest(%s::text[]) as name",
        [list(TABLES)],
    ).fetchone()
    assert row is not None
    return int(row[0])


def test_what_is_past_retention_is_deleted_and_nothing_else(
    store: Store, queue: Queue, clock: Clock, watcher: psycopg.Connection
) -> None:
    fill(queue)
    pass_time(store, clock, HISTORY * 0.6)
    assert len(queue.archive(limit=COUNT)) == COUNT - 1, "history has not ended"
    end_history(store, clock)
    assert queue.archive(limit=COUNT) == []
    assert rows(watcher) == {"log": 1, "cursor": 1, "audit": 0}, "a message that was not read, and the cursor"
    assert queue.stats("default").done == COUNT - 1
    queue.ack_many(queue.receive())
    end_history(store, clock)
    pass_time(store, clock, 3600)
    assert rows(watcher) == {"log": 0, "cursor": 1, "audit": 0}, "the cursor stays"
    assert queue.stats("default").done == COUNT
    queue.send(b"next")
    assert [delivery.payload for delivery in queue.receive()] == [b"next"]


def test_the_room_does_not_grow(store: Store, queue: Queue, clock: Clock, watcher: psycopg.Connection) -> None:
    sizes = []
    for _ in range(12):
        queue.send_many([os.urandom(SIZE) for _ in range(COUNT // 4)])
        queue.ack_many(queue.receive(limit=COUNT))
        pass_time(store, clock, HISTORY * 0.6)
        for table in TABLES:
            watcher.execute(f"vacuum penstock.{table}".encode())
        sizes.append(size(watcher))
    assert max(sizes[6:]) <= 1.2 * max(sizes[:6])
    assert queue.stats("default").done == 12 * (COUNT // 4)


def test_a_queue_with_a_long_history_does_not_keep_the_rows_of_another(
    store: Store, queue: Queue, clock: Clock, watcher: psycopg.Connection
) -> None:
    long = store.queue("long", history_seconds=1000 * HISTORY)
    for one in (long, queue, long, queue):
        one.send_many([b"x"] * COUNT)
        one.ack_many(one.receive(limit=COUNT))
        end_history(store, clock)
    assert rows(watcher)["log"] == 2 * COUNT
    assert len(long.archive(limit=3 * COUNT)) == 2 * COUNT


def test_trail_archive_and_windows_of_what_is_readable_stay_whole(store: Store, queue: Queue, clock: Clock) -> None:
    """However often retention removes what came before."""
    for number in range(6):
        ids = queue.send_many([number] * 20)
        queue.ack_many(queue.receive(limit=20))
        store.sweep()
        clock.advance(seconds=HISTORY * 0.7)
        store.sweep()
        for message_id in ids:
            assert [entry.event for entry in queue.audit(message_id)] == ["send", "receive", "ack"]
        assert {ended.message.id for ended in queue.archive(limit=1000)} >= set(ids)


def test_a_window_gives_all_its_rows_or_says_that_they_are_gone(store: Store, queue: Queue, clock: Clock) -> None:
    engine = queue.engine
    queue.send_many([b"x"] * 40)
    queue.ack_many(queue.receive(limit=40))
    for table in ("messages", "audit", "archive"):
        end = engine.horizon("orders", table)
        [part] = engine.window("orders", 0, end, 1, table)
        count = sum(batch.num_rows for batch in engine.read(part))
        assert count == {"messages": 40, "audit": 80, "archive": 40}[table]
        assert sum(batch.num_rows for batch in engine.read(part)) == count
    parts = [
        engine.window("orders", 0, engine.horizon("orders", table), 1, table)[0] for table in ("messages", "audit")
    ]
    end_history(store, clock)
    for part in parts:
        with pytest.raises(RangeTrimmed):
            list(engine.read(part))


def test_a_retry_and_a_dead_letter_keep_their_trails(
    store: Store, queue: Queue, clock: Clock, watcher: psycopg.Connection
) -> None:
    ids = fill(queue)
    [retry] = queue.receive()
    retry.nak("later", delay_seconds=20 * HISTORY)
    queue.send(b"bad")
    [bad] = queue.receive()
    bad.reject("bad")
    trails = [[(entry.event, entry.state) for entry in queue.audit(one)] for one in (ids[-1], bad.id)]
    queue.send(b"goes on")
    queue.ack_many(queue.receive())
    for _ in range(4):
        end_history(store, clock)
    assert [[(entry.event, entry.state) for entry in queue.audit(one)] for one in (ids[-1], bad.id)] == trails
    clock.advance(seconds=20 * HISTORY)
    [again] = queue.receive()
    assert again.id == ids[-1]
    again.ack()
    end_history(store, clock)
    assert [entry.event for entry in queue.audit(bad.id)] == ["send", "receive", "reject"]
    kept = rows(watcher)
    assert (kept["log"], kept["audit"]) == (1, 1), "of the dead letter"
    assert queue.purge() == 1
    for _ in range(3):
        pass_time(store, clock, 3601)
    assert rows(watcher) == {"log": 0, "cursor": 1, "audit": 0}, "within an hour after the letter went"


def test_an_old_letter_that_ends_again_leaves_when_the_trail_begins_behind_it(
    store: Store, queue: Queue, clock: Clock, watcher: psycopg.Connection
) -> None:
    """Until then readers of the trail find the entries and their message."""
    queue.send(b"bad")
    [bad] = queue.receive()
    bad.reject("bad")
    end_history(store, clock)
    assert queue.redrive(ids=[bad.id]) == 1
    [again] = queue.receive()
    mark = queue.engine.horizon("orders", "archive")
    again.ack()
    end_history(store, clock)
    pass_time(store, clock, 3601)
    [part] = queue.engine.window("orders", mark, queue.engine.horizon("orders", "archive"), 1, "archive")
    assert [row for batch in queue.engine.read(part) for row in batch["payload"].to_pylist()] == [b"bad"]
    queue.send(b"next")
    queue.ack_many(queue.receive())
    end_history(store, clock)
    for _ in range(2):
        pass_time(store, clock, 3601)
    assert rows(watcher) == {"log": 0, "cursor": 1, "audit": 0}
    with pytest.raises(RangeTrimmed):
        queue.engine.window("orders", mark, queue.engine.horizon("orders", "archive"), 1, "archive")


def test_much_is_deleted_in_parts_that_are_committed_one_by_one(
    store: Store, queue: Queue, clock: Clock, postgres_url: str, watcher: psycopg.Connection
) -> None:
    """The committed parts of a cancelled sweep stay."""
    for _ in range(3):
        queue.send_many([b"x"] * 10_000)
        queue.ack_many(queue.receive(limit=10_000))
    store.sweep()
    clock.advance(seconds=HISTORY + 1)
    with psycopg.connect(postgres_url) as sweeping:
        sweeping.execute("select set_config('penstock.now', %s, false)", [str(clock())])
        sweeping.execute("select penstock.sweep_queue('orders')")
        sweeping.commit()
        assert rows(watcher)["log"] == 20_000
        sweeping.execute("select penstock.delete_trimmed('orders')")
        assert rows(watcher)["log"] == 20_000
        sweeping.rollback()
        assert rows(watcher)["log"] == 20_000
    assert queue.stats("default").done == 30_000
    assert queue.archive() == [], "past retention, whether deleted or not"
    queue.receive(group="new")
    assert queue.stats("new").lag == 0
    store.sweep()
    assert rows(watcher) == {"log": 0, "cursor": 1, "audit": 0}


def test_deleting_begins_where_it_ended_while_somebody_keeps_a_snapshot(
    store: Store, queue: Queue, clock: Clock, other: psycopg.Connection, watcher: psycopg.Connection
) -> None:
    """Dead rows cannot be vacuumed then: a sweep must not scan all of them again."""
    queue.send_many([b"x"] * 1000)
    queue.ack_many(queue.receive(limit=1000))
    other.execute("set transaction isolation level repeatable read")
    assert other.execute("select count(*) from penstock.log").fetchone() == (1000,)
    end_history(store, clock)
    assert rows(watcher)["log"] == 0
    place = watcher.execute("select lane_id, tx::text, position from penstock.deletion where lane_id > 0").fetchone()
    counted = (
        "select count(*) filter (where (tx, position) > (%s::xid8, %s)), count(*) from penstock.log where lane_id = %s"
    )
    assert place is not None
    lane_id, tx, position = place
    assert other.execute(counted, (tx, position, lane_id)).fetchone() == (0, 1000)


def test_nobody_who_sends_waits_while_rows_are_deleted(
    store: Store, queue: Queue, clock: Clock, postgres_url: str
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
    for _ in range(12):
        queue.ack_many(queue.receive(limit=10_000))
        pass_time(store, clock, HISTORY * 0.6)
    over.set()
    sender.join()
    assert not errors
    assert sent[0] > 20


def test_a_group_that_is_far_behind_keeps_only_what_it_has_not_read(
    store: Store, queue: Queue, clock: Clock, other: psycopg.Connection
) -> None:
    queue.send_many([b"%d" % number for number in range(100)])
    store.sweep()
    queue.send_many([b"%d" % number for number in range(100, 1300)])
    queue.ack_many(queue.receive(limit=100))
    for _ in range(3):
        # As in a long time in which other queues are sent to.
        other.execute(
            "select nextval('penstock.position'), penstock._record_decided_position() from generate_series(1, 1100)"
        )
        other.commit()
        store.sweep()
    pass_time(store, clock, HISTORY + 1)
    assert queue.archive() == []
    assert [delivery.payload for delivery in queue.receive()] == [b"100"]
    row = other.execute("select count(*) from penstock.decided_position").fetchone()
    assert row is not None
    assert row[0] < 2 * 1100
