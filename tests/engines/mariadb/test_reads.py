"""The rows that a call reads do not grow with the store: no table is scanned and nothing large is sorted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count, islice
from typing import Any

import pytest

import penstock
from tests.conformance.clock import Clock
from tests.engines.mariadb.server import IS_MYSQL, fresh_database, own_connection

MESSAGES = 100_000
# Rows of each kind that is more than plain.
MANY = 3_000
# Runs of positions of a lane.
RUNS = 700
# Each table has far more rows.
MOST_ROWS = 400
# Ranges in flight: every other message of a receive was acked.
LEASES = MANY // 2 + 100
QUEUE = "orders"

pytestmark = pytest.mark.skipif(IS_MYSQL, reason="MySQL counts the rows of its own status tables too")


class LargeStore:
    """A store with messages of every kind, in which nothing is due."""

    def __init__(self, url: str) -> None:
        self.clock = Clock()
        self.store = penstock.connect(url, clock=self.clock)
        self.queue = self.store.queue(QUEUE, lease_seconds=36_000)
        self.admin = own_connection(url, autocommit=True)
        self.numbers = count()
        self._fill()

    def _fill(self) -> None:
        queue = self.queue
        for _ in range(MESSAGES // 10_000):
            queue.send_many([b"x"] * 10_000)
        # Each ends the run of positions of the other lane.
        for number in range(2 * RUNS):
            queue.send(b"x", priority=number % 2)
        deliveries = queue.receive(limit=3 * MANY)
        queue.settle([penstock.Nak(one, delay_seconds=7_200) for one in deliveries[:MANY]])
        queue.settle([penstock.Reject(one) for one in deliveries[MANY : 2 * MANY]])
        queue.ack_many(deliveries[2 * MANY :: 2])
        queue.send_many([penstock.Outgoing(payload=b"x", delay_seconds=7_200) for _ in range(MANY)])
        queue.send_many([penstock.Outgoing(payload=b"x", id=self.new_id()) for _ in range(MANY)])
        queue.send_many([penstock.Outgoing(payload=b"x", ttl_seconds=86_400, priority=1) for _ in range(MANY)])
        queue.send_many([penstock.Outgoing(payload=b"x", address=f"a{number}") for number in range(MANY)])
        batch = queue.batch("large")
        batch.send_many([b"x"] * MANY)
        batch.start()
        with closing(self.admin.cursor()) as cursor:
            cursor.execute("show full tables where table_type = 'BASE TABLE'")
            for table, _ in cursor.fetchall():
                cursor.execute(f"analyze table {table}")
                cursor.fetchall()

    def new_id(self) -> str:
        return f"{next(self.numbers):08x}-0000-4000-8000-000000000000"

    def rows_read(self, call: Callable[[], Any]) -> int:
        before = self._counted()
        call()
        return self._counted() - before

    def _counted(self) -> int:
        """What the statement itself reads is the same each time, and subtracted."""
        with closing(self.admin.cursor()) as cursor:
            cursor.execute(
                "show global status where variable_name like 'Handler\\_read%' or variable_name = 'Sort_rows'"
            )
            rows = cursor.fetchall()
            return sum(int(number) for _, number in rows)

    def close(self) -> None:
        self.admin.close()
        self.store.close()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LargeStore]:
    made = LargeStore(fresh_database(tmp_path_factory.mktemp("large")))
    yield made
    made.close()


def _calls(large: LargeStore) -> dict[str, Callable[[], object]]:
    queue, engine = large.queue, large.store.engine
    taken = queue.receive(limit=20)
    return {
        "send": lambda: queue.send(b"x"),
        "send with a priority": lambda: queue.send(b"x", priority=1),
        "send with an id": lambda: queue.send(b"x", id=large.new_id()),
        "send with an id again": lambda: queue.send(b"x", id=f"{0:08x}-0000-4000-8000-000000000000"),
        "send with an address": lambda: queue.send(b"x", address=large.new_id()),
        "send with a delay": lambda: queue.send(b"x", delay_seconds=7_200),
        "send with a time to live": lambda: queue.send(b"x", ttl_seconds=7_200),
        "receive": queue.receive,
        "receive several": lambda: queue.receive(limit=10),
        "receive as a new group": lambda: queue.receive(group=large.new_id()),
        "ack": taken[3].ack,
        "ack again": taken[3].ack,
        "nak": lambda: taken[4].nak(delay_seconds=7_200),
        "reject": taken[5].reject,
        "reschedule": taken[6].reschedule,
        "extend": lambda: taken[7].extend(72_000),
        "ack the rest": lambda: queue.ack_many(taken[8:]),
        "find": lambda: queue.find(taken[0].id),
        "audit": lambda: queue.audit(taken[3].id),
        "explain": lambda: queue.explain(taken[0].id),
        "archive": lambda: list(islice(queue.archive(limit=1), 1)),
        "dead letters": lambda: list(islice(queue.dead_letters(limit=10), 10)),
        "browse": lambda: engine.browse(QUEUE, 0, None, 10),
        "ready in": lambda: engine.ready_in(QUEUE, None),
        "wait for an address": lambda: queue.is_live("a5"),
        "queues": large.store.queues,
    }


def test_no_call_reads_more_than_it_needs(large: LargeStore) -> None:
    """Twice: the first calls after some others are made statement by statement."""
    for _ in range(2):
        read = {name: large.rows_read(call) for name, call in _calls(large).items()}
        assert {name: rows for name, rows in read.items() if rows > MOST_ROWS} == {}


def test_a_sweep_with_nothing_to_do_reads_leases_and_no_messages(large: LargeStore) -> None:
    """Retention included: the clock moves by an hour, in which nothing ends."""
    large.store.sweep()
    assert large.rows_read(large.store.sweep) < LEASES + MOST_ROWS
    large.clock.advance(seconds=3_600)
    assert large.rows_read(large.store.sweep) < LEASES + MOST_ROWS


def test_counts_read_what_is_in_flight_and_no_messages(large: LargeStore) -> None:
    assert large.rows_read(large.queue.stats) < 4 * (LEASES + MANY)
