"""Behind a pooler in transaction mode, with default settings of it and of Penstock."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import penstock
from penstock import Store
from penstock.engines.postgres import prepared_statements
from tests.engines.postgres.pooler import PROGRAM, pooler

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="not installed: pgbouncer")


@pytest.fixture
def pooled_url(postgres_url: str) -> Iterator[str]:
    with pooler(postgres_url) as url:
        yield url


class Sessions:
    """Decides which of the two sessions of the server is free, by keeping the other one busy."""

    def __init__(self, url: str) -> None:
        self._busy = [psycopg.connect(url, prepare_threshold=None) for _ in range(2)]
        for each in self._busy:
            each.execute("select 1")

    def free(self, number: int) -> None:
        self._busy[1 - number].execute("select 1")
        self._busy[number].rollback()

    def close(self) -> None:
        for each in self._busy:
            each.close()


@pytest.fixture
def sessions(pooled_url: str) -> Iterator[Sessions]:
    sessions = Sessions(pooled_url)
    yield sessions
    sessions.close()


def test_no_client_runs_a_statement_of_another(store: Store, pooled_url: str, sessions: Sessions) -> None:
    orders = store.queue("orders")
    orders.send_many([b"1", b"2", b"3"])
    options: penstock.ConnectSettings = {"pool_size": 1, "listen": False}
    sessions.free(0)
    with penstock.connect(pooled_url, **options) as cleaner, penstock.connect(pooled_url, **options) as monitor:
        cleaner.queue("scratch").flush()
        sessions.free(1)
        assert monitor.queue("orders").stats(group="default").available == 3
        sessions.free(0)
        assert monitor.queue("orders").stats(group="default").available == 3
    assert orders.stats(group="default").available == 3


def test_many_clients_share_two_sessions(store: Store, pooled_url: str) -> None:
    """Every hot verb, at the same time from clients that come to another session with every call."""
    count, clients = 40, 4

    def work(number: int) -> set[str]:
        seen = set()
        with penstock.connect(pooled_url, pool_size=2) as mine:
            queue = mine.queue("shared")
            own = mine.queue(f"own {number}")
            for turn in range(count):
                queue.send(f"{number}/{turn}".encode(), priority=turn % 2)
                own.send_many([b"x", b"y"])
                first, second = own.receive(limit=2)
                first.extend(60)
                own.ack_many([first])
                second.nak("again", delay_seconds=0)
                [again] = own.receive()
                own.settle([penstock.Ack(again)])
                for delivery in queue.receive(limit=2):
                    seen.add(delivery.payload.decode())
                    delivery.ack()
                assert own.stats(group="default").done == 2 * turn + 2
            assert own.stats(group="default").available == 0
        return seen

    with ThreadPoolExecutor(clients) as threads:
        seen = [payload for each in threads.map(work, range(clients)) for payload in each]
    left = [delivery.payload.decode() for delivery in store.queue("shared").receive(limit=1000)]
    assert sorted(seen + left) == sorted(f"{number}/{turn}" for number in range(clients) for turn in range(count))


def test_calls_that_are_gathered_work_too(pooled_url: str) -> None:
    async def work(number: int) -> None:
        async with await penstock.connect_async(pooled_url) as store:
            queue = await store.queue(f"gathered {number}")
            ids = await asyncio.gather(*(queue.send(f"{turn}".encode()) for turn in range(50)))
            received = await queue.receive(limit=100)
            assert sorted(delivery.id for delivery in received) == sorted(ids)
            await asyncio.gather(*(delivery.ack() for delivery in received))
            assert (await queue.stats(group="default")).done == 50

    async def together() -> None:
        await asyncio.gather(*(work(number) for number in range(3)))

    asyncio.run(together())


def test_a_receive_that_waits_gets_what_is_sent(store: Store, pooled_url: str, watcher: psycopg.Connection) -> None:
    with penstock.connect(pooled_url) as pooled, ThreadPoolExecutor() as threads:
        waiting = threads.submit(lambda: pooled.queue("orders").receive(wait_seconds=60))
        _until(lambda: not any(thread.name == "penstock-watch" for thread in threading.enumerate()), waiting.done)
        store.queue("orders").send(b"late")
        [delivery] = waiting.result(timeout=60)
        assert delivery.payload == b"late"
    assert watcher.execute("select count(*) from pg_locks where locktype = 'advisory'").fetchone() == (0,)


def test_a_pooler_that_keeps_sessions_lets_notifications_pass(store: Store, postgres_url: str) -> None:
    with pooler(postgres_url, mode="session", size=10) as url:
        with penstock.connect(url) as pooled, ThreadPoolExecutor() as threads:
            waiting = threads.submit(lambda: pooled.queue("orders").receive(wait_seconds=60))
            with psycopg.connect(postgres_url, autocommit=True) as watcher:
                listens = "select count(*) from pg_locks where locktype = 'advisory' and mode = 'ShareLock'"
                _until(lambda: watcher.execute(listens).fetchone() == (1,), waiting.done)
            store.queue("orders").send(b"late")
            [delivery] = waiting.result(timeout=60)
            assert delivery.payload == b"late"


def _until(condition: Callable[[], bool], is_over: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not condition():
        assert not is_over()
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_a_session_that_is_shared_unnoticed_fails_no_call(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pooler that gives the true number of a session cannot be told: names are right there, or are not used."""
    with pooler(postgres_url) as url:
        monkeypatch.setattr("penstock.engines.postgres.prepared_statements.is_pooled", lambda connection: False)
        others = Sessions(url)
        others.free(0)
        with penstock.connect(url, pool_size=1, listen=False) as first:
            first.queue("orders").send(b"1")
            others.free(1)
            first.queue("orders").send(b"2")
        with penstock.connect(url, pool_size=1, listen=False) as second:
            others.free(0)
            second.queue("orders").send(b"3")
            assert [each.payload for each in second.queue("orders").receive(limit=9)] == [b"1", b"2", b"3"]
        others.close()


def test_a_name_is_made_of_the_text(postgres_url: str) -> None:
    def names() -> dict[str, str]:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            prepared_statements.rows(connection, "select %s::int", (1,))
            prepared_statements.rows(connection, "select %s::text", ("x",))
            found = connection.execute("select name, statement from pg_prepared_statements").fetchall()
        return dict(found)

    assert len(names()) == 2
    assert names() == names()
    assert all(re.fullmatch("penstock_[0-9a-f]{32}", name) for name in names())
