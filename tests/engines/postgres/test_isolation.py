"""Verbs in transactions that are not the usual ones: of another isolation level, or prepared for a two-phase commit."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import IsolationLevel

from penstock import Queue


@pytest.fixture
def older(queue: Queue, other: psycopg.Connection) -> psycopg.Connection:
    """A transaction whose snapshot is older than all that the test does."""
    queue.send(b"first")
    queue.ack_many(queue.receive())
    other.isolation_level = IsolationLevel.REPEATABLE_READ
    other.execute("select count(*) from penstock.queue")
    return other


SETTLES = {
    "ack": "select penstock.ack('orders', %(id)s, %(token)s)",
    "nak": "select penstock.nak('orders', %(id)s, %(token)s)",
    "extend": "select penstock.extend('orders', %(id)s, %(token)s, 60)",
    "settle": "select penstock.settle('orders', 'default', '{ack}', array[%(token)s], array[%(position)s], "
    "'{null}', '{0}')",
}


@pytest.mark.parametrize("verb", SETTLES)
def test_a_lease_that_a_snapshot_is_too_old_for_is_not_called_lost(
    queue: Queue, older: psycopg.Connection, verb: str
) -> None:
    queue.send(b"x")
    [delivery] = queue.receive()
    asked = {"id": delivery.id, "token": int(delivery.token), "position": delivery.position}
    with pytest.raises(psycopg.Error, match="read committed, not repeatable read"):
        older.execute(SETTLES[verb], asked)
    older.rollback()
    older.execute(SETTLES[verb], asked)
    older.commit()
    older.isolation_level = IsolationLevel.READ_COMMITTED
    with pytest.raises(psycopg.Error, match="lost"):
        older.execute("select penstock.ack('orders', %(id)s, %(token)s + 1)", asked)


def test_the_calls_of_other_conventions_do_not_call_it_lost_either(
    older: psycopg.Connection, watcher: psycopg.Connection
) -> None:
    older.rollback()
    watcher.execute("select penstock.create_queue_schema('jobs')")
    older.execute("select count(*) from penstock.queue")
    watcher.execute("call jobs.enqueue('{}')")
    row = watcher.execute("select msg_id from jobs.dequeue('one')").fetchone()
    assert row is not None
    with pytest.raises(psycopg.Error, match="read committed, not repeatable read"):
        older.execute("call jobs.message_ack(%s, 'one')", row)
    older.rollback()
    older.execute("call jobs.message_ack(%s, 'one')", row)


def test_a_send_can_be_prepared_while_somebody_waits(
    queue: Queue, other: psycopg.Connection, watcher: psycopg.Connection
) -> None:
    with ThreadPoolExecutor() as threads:
        waits = threads.submit(lambda: queue.receive(wait_seconds=60))
        while watcher.execute("select penstock._somebody_listens()").fetchone() != (True,):
            time.sleep(0.001)
        other.execute("select penstock.send('orders', '2')")
        with pytest.raises(psycopg.Error, match="NOTIFY"):
            other.execute("prepare transaction 'with a notification'")
        other.rollback()
        other.execute("set local penstock.notify = off")
        other.execute("select penstock.send('orders', '2')")
        other.execute("prepare transaction 'without'")
        other.rollback()
        assert not waits.done()
        watcher.execute("commit prepared 'without'")
        assert [delivery.payload for delivery in waits.result(60)] == [b"2"]
