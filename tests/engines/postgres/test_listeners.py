"""Senders look whether anybody listens. Whatever is cancelled meanwhile, they leave no lock behind."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from penstock import Store

# The lock as it was before, in two halves: a session of an older version may have left it.
OLDER_KEY = "1347310675, 0"
SENDS = "do $$ begin for i in 1..100000 loop perform penstock._somebody_listens(); end loop; end $$"


def test_law_14_a_cancelled_send_leaves_no_lock(postgres_url: str, watcher: psycopg.Connection) -> None:
    chance = random.Random(14)
    with psycopg.connect(postgres_url, autocommit=True) as sender:
        for _ in range(200):
            sender.execute("select set_config('statement_timeout', %s, false)", [str(chance.randint(1, 4))])
            with pytest.raises(psycopg.errors.QueryCanceled):
                sender.execute(SENDS)
            assert watcher.execute("select mode from pg_locks where locktype = 'advisory'").fetchall() == []


def test_a_lock_that_an_older_version_left_keeps_nobody_from_listening(
    store: Store, postgres_url: str, watcher: psycopg.Connection
) -> None:
    queue = store.queue("orders")
    with psycopg.connect(postgres_url, autocommit=True) as older, ThreadPoolExecutor() as threads:
        older.execute(f"select pg_advisory_lock({OLDER_KEY})")
        waiting = threads.submit(lambda: queue.receive(wait_seconds=60))
        _until(lambda: _listens(watcher))
        queue.send(b"late")
        assert [each.payload for each in waiting.result(timeout=60)] == [b"late"]


def test_whoever_cannot_listen_looks_now_and_then(store: Store, postgres_url: str, watcher: psycopg.Connection) -> None:
    """A lock of somebody else on the same key costs time, not messages, and no busy session."""
    queue = store.queue("orders")
    with psycopg.connect(postgres_url, autocommit=True) as foreign, ThreadPoolExecutor() as threads:
        foreign.execute("select pg_advisory_lock(7305793389475492353)")
        waiting = threads.submit(lambda: queue.receive(wait_seconds=60))
        queue.send(b"late")
        assert [each.payload for each in waiting.result(timeout=60)] == [b"late"]
        again = threads.submit(lambda: queue.receive(wait_seconds=60))
        foreign.execute("select pg_advisory_unlock_all()")
        _until(lambda: _listens(watcher))
        queue.send(b"later")
        assert [each.payload for each in again.result(timeout=60)] == [b"later"]


def test_senders_see_whether_somebody_listens(postgres_url: str, watcher: psycopg.Connection) -> None:
    asked = "select penstock._somebody_listens()"
    with psycopg.connect(postgres_url, autocommit=True) as listener:
        assert watcher.execute(asked).fetchone() == (False,)
        listener.execute("select pg_try_advisory_lock_shared(7305793389475492353)")
        assert watcher.execute(asked).fetchone() == (True,)
    _until(lambda: watcher.execute(asked).fetchone() == (False,))


def _listens(watcher: psycopg.Connection) -> bool:
    found = "select 1 from pg_locks where locktype = 'advisory' and mode = 'ShareLock' and granted"
    return watcher.execute(found).fetchone() is not None


def _until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)
