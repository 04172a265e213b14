"""Counts that are kept and not counted anew: at every moment they are what there is."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg

import penstock
from penstock import Outgoing, Queue, Reject, Store
from penstock.engines.postgres import migration
from tests.engines.postgres.earlier import NOW, earlier_store

# What may be read more than before: a few blocks, and not a letter each.
MORE = 15
ROUNDS = 25
DEAD = """
    select s.dead,
        (select count(*) from penstock.dead_letters as d where d.queue = 'orders' and d.group_name = 'default')
    from penstock.stats('orders') as s where s.group_name = 'default'
"""
# All that was ever sent to the queue without what lies behind the group's cursors.
BY_COUNTERS = """
    select sum(penstock._count_sent(l) - case when c.number = 0 then l.trimmed else c.passed end)
    from penstock.queue as q
    join penstock.group as g using (queue_id)
    join penstock.lane as l on l.queue_id = q.queue_id and l.priority >= 0
    cross join lateral penstock._get_cursor(g.group_id, l.lane_id) as c
    where q.name = 'orders' and g.name = %s
"""


def reject(queue: Queue, count: int) -> list[str]:
    """Dead letters, if there are so many ready messages."""
    taken = queue.receive(limit=count)
    queue.settle([Reject(one, "no") for one in taken])
    return [one.id for one in taken]


def test_letters_are_counted_without_looking_at_them(store: Store, queue: Queue, watcher: psycopg.Connection) -> None:
    queue.send_many([b"x" * 400] * 2_200)
    reject(queue, 100)
    store.sweep()
    few = blocks(watcher)
    reject(queue, 2_000)
    store.sweep()
    many = blocks(watcher)
    print(few, many)
    # The counters of attempts and endings leave rows behind until the next vacuum; 2,000 letters have 200 blocks.
    assert many <= few + 4 * MORE
    assert queue.stats("default").dead == 2_100


def test_the_length_of_a_queue_is_counted_without_reading_it(
    store: Store, queue: Queue, watcher: psycopg.Connection
) -> None:
    """Whether or not the planner knows anything about the log yet."""
    length = "select penstock.unread('orders')"
    queue.send_many([b"x" * 400] * 100)
    store.sweep()
    few = blocks(watcher, length)
    queue.send_many([b"x" * 400] * 20_000)
    store.sweep()
    queue.send(1)
    many = blocks(watcher, length)
    watcher.execute("vacuum analyze penstock.log")
    known = blocks(watcher, length)
    print(few, many, known)
    assert max(many, known) <= few + MORE
    assert one(watcher, length)[0] == 20_101
    queue.send(2, ttl_seconds=0.000_001)
    assert one(watcher, length)[0] == 20_101


def blocks(connection: psycopg.Connection, statement: str = "select * from penstock.stats('orders')") -> int:
    look = f"explain (analyze, buffers, timing off, format json) {statement}"
    one(connection, look)  # what is read once for each connection is not the look's
    plan = one(connection, look)[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def test_letters_are_counted_rightly_at_every_moment(store: Store, queue: Queue, postgres_url: str) -> None:
    """While they come and go, are moved from one place of the count to another, and some calls are undone."""
    queue.send_many([b"x"] * 2_000)
    is_over = threading.Event()

    def make() -> None:
        for _ in range(ROUNDS):
            reject(queue, 20)

    def take_away() -> None:
        for turn in range(ROUNDS):
            if turn % 2:
                queue.redrive(limit=7)
            else:
                queue.purge(limit=3)

    def undo() -> None:
        with psycopg.connect(postgres_url) as connection:
            for _ in range(ROUNDS):
                connection.execute("select penstock.purge('orders', \"limit\" => 2)")
                connection.rollback()

    def fold() -> None:
        while not is_over.is_set():
            store.sweep()

    def compare() -> int:
        looks = 0
        with psycopg.connect(postgres_url) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            while not is_over.is_set():
                kept, there = one(connection, DEAD)
                connection.rollback()
                assert kept == there
                looks += 1
        return looks

    with ThreadPoolExecutor() as threads:
        folding, comparing = threads.submit(fold), threads.submit(compare)
        try:
            for work in [threads.submit(make), threads.submit(take_away), threads.submit(undo)]:
                work.result()
        finally:
            is_over.set()
        folding.result()
        assert comparing.result() > 0
    with psycopg.connect(postgres_url) as connection:
        kept, there = one(connection, DEAD)
        assert kept == there > 0
        store.sweep()
        assert one(connection, DEAD) == (there, there)
        assert one(connection, "select count(*) from penstock.dead_change") == (0,)


def test_letters_that_go_with_all_else_are_counted_too(queue: Queue, store: Store, watcher: psycopg.Connection) -> None:
    queue.send_many([b"x"] * 9)
    first = reject(queue, 6)
    store.engine.remove("orders", first[:1])
    assert one(watcher, DEAD) == (5, 5)
    queue.seek("default", "start")
    assert one(watcher, DEAD) == (0, 0)
    reject(queue, 4)
    store.sweep()
    assert one(watcher, DEAD) == (4, 4)
    queue.flush()
    assert one(watcher, DEAD) == (0, 0)


def test_what_a_group_has_not_read_is_the_same_by_looking_and_by_counters(
    queue: Queue, store: Store, watcher: psycopg.Connection
) -> None:
    """A group that keeps up is counted by looking at what is before it, when much has come since the last sweep."""

    def lags() -> tuple[int, int]:
        found = queue.stats("default").lag, queue.stats("late").lag
        assert found == (one(watcher, BY_COUNTERS, "default")[0], one(watcher, BY_COUNTERS, "late")[0])
        return found

    ids = queue.send_many([Outgoing(payload=b"%d" % number, priority=number % 2) for number in range(600)])
    queue.receive(limit=10, group="late")
    queue.ack_many(queue.receive(limit=500))
    assert lags() == (100, 590)
    store.engine.remove("orders", [ids[0], ids[598], ids[599]])
    assert lags() == (99, 588)
    queue.send_many([Outgoing(payload=b"held", delay_seconds=3600)] * 5)
    queue.seek("late", 300)
    assert lags() == (99, 298)
    store.sweep()
    queue.send_many([b"more"] * 400)
    assert lags() == (499, 698)
    queue.ack_many(queue.receive(limit=450))
    queue.seek("default", 590)
    store.engine.trim("orders", keep=200)
    assert lags() == (200, 200)
    queue.send_many([b"yet more"] * 1_500)
    assert lags() == (1_700, 1_700), "more than are looked at"


def test_a_store_of_before_gets_its_counts() -> None:
    before = [name for name, _ in migration.steps()].index("007_counts")
    with earlier_store(before) as (url, connection), penstock.connect(url) as store:
        connection.execute(
            "insert into penstock.dead_letter (group_id, seq, queue_id, lane_id, priority, outcome, attempts, died_at, "
            "created_at, payload) select 1, n, 1, 1, 0, 'rejected', 1, %s, %s, '' from generate_series(1, 12) as n",
            [NOW, NOW],
        )
        connection.execute("select setval('penstock.position', 12)")
        assert "007_counts" in store.migrate()
        assert one(connection, DEAD) == (12, 12)
        queue = store.queue("orders")
        queue.send_many([b"x"] * 3)
        reject(queue, 3)
        queue.purge(limit=1)
        assert one(connection, DEAD) == (14, 14)


def one(connection: psycopg.Connection, statement: str, *values: object) -> tuple[Any, ...]:
    row = connection.execute(statement.encode(), values).fetchone()
    assert row is not None
    return tuple(row)
