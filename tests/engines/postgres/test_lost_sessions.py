"""A session that ends between two operations of one transaction: the caller gets an error of Penstock."""

from __future__ import annotations

import psycopg
import pytest

import penstock
from penstock import Queue, Store, StoreUnavailable


def test_a_session_that_ends_before_a_savepoint_is_an_unavailable_store(
    store: Store, queue: Queue, watcher: psycopg.Connection
) -> None:
    """The refused operation makes the transaction use savepoints, and the session ends before the next one."""

    def refused() -> None:
        raise penstock.InvalidInput("refused")

    def end_session() -> None:
        [(pid,)] = store.engine.database.rows("select pg_backend_pid()")  # type: ignore[attr-defined]  # the engine of PostgreSQL
        watcher.execute("select pg_terminate_backend(%s, 5000)", [pid])

    with pytest.raises(StoreUnavailable):
        store.engine.together([refused, end_session, lambda: queue.send(1)])
    assert queue.send(2)
    assert [one.json() for one in queue.receive(limit=10)] == [2]
