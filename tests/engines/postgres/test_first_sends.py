"""The first send to a queue inside a long transaction: whom it makes wait, and how not to."""

from __future__ import annotations

import psycopg
import pytest

from penstock import Queue, Store

SEND = "select penstock.send(%s, '1', priority => %s)"


@pytest.fixture
def hurried(watcher: psycopg.Connection) -> psycopg.Connection:
    """Gives up when it has to wait for anybody."""
    watcher.execute("set lock_timeout = '50ms'")
    return watcher


def test_others_who_send_to_other_queues_do_not_wait(
    store: Store, other: psycopg.Connection, hurried: psycopg.Connection
) -> None:
    store.queue("old").send(1)
    other.execute(SEND, ["new", 0])
    hurried.execute(SEND, ["old", 0])
    hurried.execute(SEND, ["another new one", 0])
    other.rollback()
    assert [one.name for one in store.queues()] == ["another new one", "old"]


def test_a_queue_that_was_prepared_makes_nobody_wait(
    store: Store, other: psycopg.Connection, hurried: psycopg.Connection
) -> None:
    hurried.execute("select penstock.prepare('new', '{0,5}')")
    other.execute(SEND, ["new", 0])
    other.execute(SEND, ["new", 5])
    hurried.execute(SEND, ["new", 0])
    hurried.execute(SEND, ["new", 5])
    assert len(store.queue("new").receive(limit=10)) == 2
    other.commit()
    assert len(store.queue("new").receive(limit=10)) == 2


def test_one_that_was_not_makes_those_wait_who_send_to_the_same(
    other: psycopg.Connection, hurried: psycopg.Connection
) -> None:
    """As docs/postgres.md says. When this fails, it can say something better."""
    other.execute(SEND, ["new", 0])
    with pytest.raises(psycopg.errors.LockNotAvailable):
        hurried.execute(SEND, ["new", 0])
    other.commit()
    hurried.execute(SEND, ["new", 0])


def test_a_send_of_python_in_a_transaction_prepares_by_itself(
    queue: Queue, store: Store, other: psycopg.Connection, hurried: psycopg.Connection
) -> None:
    store.queue("new").send(1, priority=3, transaction=other)
    hurried.execute(SEND, ["new", 3])
    assert len(store.queue("new").receive(limit=10)) == 1
