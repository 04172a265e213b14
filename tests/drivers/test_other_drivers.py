"""Unsupported drivers: the error names the driver and an alternative."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import asyncpg
import psycopg2
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import penstock
from penstock import InvalidInput, Queue
from tests.conformance.assertions import payloads, take_all


def test_psycopg2(queue: Queue, postgres_url: str) -> None:
    connection = psycopg2.connect(postgres_url)
    with pytest.raises(InvalidInput, match="connection of psycopg2, and a send needs one of psycopg 3") as refused:
        queue.send(1, transaction=connection)
    _run_advice(str(refused.value), connection)
    connection.close()
    assert payloads(take_all(queue)) == [{"by": "SQL"}]


def _run_advice(told: str, connection: psycopg2.extensions.connection) -> None:
    """The statement in the error message works."""
    _, statement, _ = told.split("`")
    with connection, connection.cursor() as cursor:
        cursor.execute(statement, ("orders", '{"by": "SQL"}'))


def test_asyncpg(queue: Queue, postgres_url: str) -> None:
    async def send() -> None:
        connection = await asyncpg.connect(postgres_url)
        async with await penstock.connect_async(postgres_url) as store:
            orders = await store.queue("orders")
            with pytest.raises(
                InvalidInput, match="connection of asyncpg, and a send needs one of psycopg 3"
            ) as refused:
                await orders.send(1, transaction=connection)
        _, statement, _ = str(refused.value).split("`")
        async with connection.transaction():
            await connection.execute(statement, "orders", '{"by": "SQL"}')
        await connection.close()

    asyncio.run(send())
    assert payloads(take_all(queue)) == [{"by": "SQL"}]


@pytest.mark.parametrize("driver", ["psycopg2", "asyncpg"])
def test_sqlalchemy_on_them(queue: Queue, postgres_url: str, driver: str) -> None:
    async def send_async() -> None:
        engine = create_async_engine(_url(postgres_url, driver))
        try:
            async with await penstock.connect_async(postgres_url) as store, AsyncSession(engine) as session:
                orders = await store.queue("orders")
                await orders.send(1, transaction=session)
        finally:
            await engine.dispose()

    def send() -> None:
        engine = sqlalchemy.create_engine(_url(postgres_url, driver))
        try:
            with Session(engine) as session:
                queue.send(1, transaction=session)
        finally:
            engine.dispose()

    with pytest.raises(InvalidInput, match=rf"connection of {driver}.*SQLAlchemy: postgresql\+psycopg://"):
        asyncio.run(send_async()) if driver == "asyncpg" else send()
    assert take_all(queue) == []


def _url(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture
def in_file(file: Path) -> Iterator[Queue]:
    with penstock.connect(f"sqlite:///{file}") as store:
        yield store.queue("orders")


def test_sqlite3(in_file: Queue, file: Path) -> None:
    connection = sqlite3.connect(file)
    with pytest.raises(InvalidInput, match=r"one of sqlite3, which brings a second copy of SQLite.*id of the row"):
        in_file.send(1, transaction=connection)
    connection.close()
    assert in_file.peek() == []


def test_sqlalchemy_on_sqlite3(in_file: Queue, file: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{file}")
    with Session(engine) as session, pytest.raises(InvalidInput, match="one of sqlite3, which brings a second copy"):
        in_file.send(1, transaction=session)
    engine.dispose()
    assert in_file.peek() == []


@pytest.mark.skipif(sys.platform == "win32", reason="locks of files belong to a handle there")
@pytest.mark.skipif(not apsw.using_amalgamation, reason="this apsw shares the library with sqlite3")
def test_two_copies_of_sqlite_do_not_see_each_others_locks(tmp_path: Path) -> None:
    """Why sqlite3 is refused, however new its SQLite is. When this fails, the refusal can go."""
    ours, theirs = apsw.Connection(str(tmp_path / "a.db")), sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    ours.execute("pragma journal_mode = wal").fetchall()
    theirs.execute("begin immediate")
    ours.execute("begin immediate")
    ours.execute("rollback")
    theirs.close()
    ours.close()
