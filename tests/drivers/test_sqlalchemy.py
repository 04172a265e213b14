"""SQLAlchemy on psycopg: connections and sessions, blocking and asynchronous."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import select
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

import penstock
from penstock import InvalidInput, Queue
from penstock.client.aio.queue import AsyncQueue
from tests.conformance.assertions import payloads, take_all


class Table(DeclarativeBase):
    pass


class Invoice(Table):
    __tablename__ = "invoice"

    number: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
def engine(postgres_url: str) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(_url(postgres_url))
    Table.metadata.create_all(engine)
    yield engine
    engine.dispose()


def _url(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


def numbers(engine: sqlalchemy.Engine) -> list[int]:
    with Session(engine) as session:
        return list(session.scalars(select(Invoice.number).order_by(Invoice.number)))


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_connection(queue: Queue, engine: sqlalchemy.Engine, ending: str) -> None:
    with engine.connect() as connection:
        queue.send("first of all", transaction=connection)
        connection.execute(sqlalchemy.insert(Invoice).values(number=1))
        getattr(connection, ending)()
    kept = ending == "commit"
    assert payloads(take_all(queue)) == ["first of all"] * kept
    assert numbers(engine) == [1] * kept


def test_a_connection_that_begins_a_block(queue: Queue, engine: sqlalchemy.Engine) -> None:
    with engine.begin() as connection:
        queue.send("kept", transaction=connection)
        with connection.begin_nested() as savepoint:
            queue.send("undone", transaction=connection)
            savepoint.rollback()
    assert payloads(take_all(queue)) == ["kept"]


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_session(queue: Queue, engine: sqlalchemy.Engine, ending: str) -> None:
    with Session(engine) as session:
        session.add(Invoice(number=1))
        queue.send("first of all", transaction=session)
        with session.begin_nested() as savepoint:
            queue.send("undone", transaction=session)
            savepoint.rollback()
        queue.send("last", transaction=session)
        getattr(session, ending)()
    kept = ending == "commit"
    assert payloads(take_all(queue)) == ["first of all", "last"] * kept
    assert numbers(engine) == [1] * kept


def test_a_session_that_commits_late_loses_nothing(queue: Queue, engine: sqlalchemy.Engine) -> None:
    """A message sent later but committed earlier is read first, and does not hide the other."""
    with Session(engine) as session:
        queue.send("early", transaction=session)
        queue.send("overtakes")
        assert payloads(take_all(queue)) == ["overtakes"]
        session.commit()
    assert payloads(take_all(queue)) == ["early"]


def test_a_session_of_a_registry(queue: Queue, engine: sqlalchemy.Engine) -> None:
    """As Flask-SQLAlchemy has it."""
    session = scoped_session(sessionmaker(engine))
    queue.send("undone", transaction=session)
    session.rollback()
    queue.send("kept", transaction=session)
    session.commit()
    session.remove()
    assert payloads(take_all(queue)) == ["kept"]


def test_a_closed_connection_and_an_engine_are_refused(queue: Queue, engine: sqlalchemy.Engine) -> None:
    with engine.connect() as connection:
        pass
    with pytest.raises(InvalidInput, match="closed"):
        queue.send(1, transaction=connection)
    with pytest.raises(InvalidInput, match="session of SQLAlchemy on psycopg, not 'Engine'"):
        queue.send(1, transaction=engine)
    assert take_all(queue) == []


WITHOUT_GREENLET = """
import sys
sys.modules["greenlet"] = None
import penstock, sqlalchemy
from sqlalchemy.orm import Session
engine = sqlalchemy.create_engine(sys.argv[2])
with penstock.connect(sys.argv[1]) as store, Session(engine) as session:
    store.queue("orders").send("by a session", transaction=session)
    session.commit()
engine.dispose()
"""


def test_blocking_sessions_do_not_need_what_asynchronous_ones_do(queue: Queue, postgres_url: str) -> None:
    """SQLAlchemy does not install greenlet by itself, and cannot import its asynchronous part without."""
    program = [sys.executable, "-c", WITHOUT_GREENLET, postgres_url, _url(postgres_url)]
    subprocess.run(program, check=True, timeout=60)
    assert payloads(take_all(queue)) == ["by a session"]


Scenario = Callable[[AsyncQueue, AsyncEngine], Awaitable[None]]


def sent(url: str, scenario: Scenario) -> tuple[list[Any], list[int]]:
    """The messages and rows that a scenario left."""

    async def run() -> tuple[list[Any], list[int]]:
        async with await penstock.connect_async(url) as store, _engine(url) as engine:
            queue = await store.queue("orders")
            await asyncio.wait_for(scenario(queue, engine), 60)
            async with AsyncSession(engine) as session:
                rows = list(await session.scalars(select(Invoice.number).order_by(Invoice.number)))
            return [delivery.json() for delivery in await queue.receive(limit=10)], rows

    return asyncio.run(run())


@asynccontextmanager
async def _engine(url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(_url(url))
    async with engine.begin() as connection:
        await connection.run_sync(Table.metadata.create_all)
    yield engine
    await engine.dispose()


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_an_asynchronous_session(postgres_url: str, ending: str) -> None:
    async def scenario(queue: AsyncQueue, engine: AsyncEngine) -> None:
        async with AsyncSession(engine) as session:
            await queue.send("before anything else", transaction=session)
            session.add(Invoice(number=1))
            async with session.begin_nested() as savepoint:
                await queue.send("undone", transaction=session)
                await savepoint.rollback()
            await queue.send_many(["last"], transaction=session)
            await getattr(session, ending)()

    kept = ending == "commit"
    assert sent(postgres_url, scenario) == (["before anything else", "last"] * kept, [1] * kept)


def test_an_asynchronous_session_that_fails(postgres_url: str) -> None:
    async def scenario(queue: AsyncQueue, engine: AsyncEngine) -> None:
        with contextlib.suppress(ZeroDivisionError):
            async with async_sessionmaker(engine).begin() as session:
                session.add(Invoice(number=1))
                await queue.send("never", transaction=session)
                raise ZeroDivisionError

    assert sent(postgres_url, scenario) == ([], [])


def test_an_asynchronous_session_of_a_registry(postgres_url: str) -> None:
    async def scenario(queue: AsyncQueue, engine: AsyncEngine) -> None:
        session = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
        await queue.send("undone", transaction=session)
        await session.rollback()
        await queue.send("kept", transaction=session)
        await session.commit()
        await session.remove()

    assert sent(postgres_url, scenario) == (["kept"], [])


def test_an_asynchronous_connection(postgres_url: str) -> None:
    async def scenario(queue: AsyncQueue, engine: AsyncEngine) -> None:
        unstarted = engine.connect()
        await queue.send("undone", transaction=unstarted)
        await unstarted.rollback()
        await queue.send("kept", transaction=unstarted)
        await unstarted.commit()
        await unstarted.close()
        async with engine.begin() as connection:
            await connection.execute(sqlalchemy.insert(Invoice).values(number=1))
            await queue.send("in a block", transaction=connection)

    assert sent(postgres_url, scenario) == (["kept", "in a block"], [1])


# SQLAlchemy does not close the failed connection attempt.
@pytest.mark.filterwarnings("ignore:coroutine 'AsyncConnection.connect' was never awaited:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_blocking_client_takes_an_asynchronous_session_that_is_connected(queue: Queue, postgres_url: str) -> None:
    async def scenario(_: AsyncQueue, engine: AsyncEngine) -> None:
        unpooled = create_async_engine(_url(postgres_url), poolclass=sqlalchemy.NullPool)
        async with AsyncSession(unpooled) as session:
            with pytest.raises(InvalidInput, match=r"await session.connection\(\) first"):
                queue.send("too early", transaction=session)
            await session.connection()
            queue.send("kept", transaction=session)
            await session.commit()

    assert sent(postgres_url, scenario) == (["kept"], [])
