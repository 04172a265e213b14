"""Sending within the caller's own transaction, on a connection that is not the store's."""

from __future__ import annotations

import asyncio
from typing import Any

import apsw
import psycopg
import pytest
import sqlalchemy

import penstock
from penstock import DuplicateAddress, InvalidInput, Queue
from tests.conformance.assertions import payloads, take_all
from tests.engines.postgres.server import fresh_database


def test_a_send_is_there_when_the_callers_transaction_commits(queue: Queue, url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("create table mine (n int)")
        connection.execute("insert into mine values (1)")
        queue.send("with it", transaction=connection)
        assert take_all(queue) == []
        connection.commit()
        assert payloads(take_all(queue)) == ["with it"]
        connection.execute("drop table mine")


def test_a_send_is_gone_when_the_callers_transaction_is_rolled_back(queue: Queue, url: str) -> None:
    with psycopg.connect(url) as connection:
        queue.send_many([1, 2], transaction=connection)
        queue.send(3, address="a", delay_seconds=5, transaction=connection)
        connection.rollback()
    assert queue.send(4, address="a")
    assert payloads(take_all(queue)) == [4]


def test_a_refused_send_leaves_the_callers_transaction_usable(queue: Queue, url: str) -> None:
    queue.send("first", address="a")
    with psycopg.connect(url) as connection:
        queue.send("kept", transaction=connection)
        with pytest.raises(DuplicateAddress):
            queue.send("second", address="a", transaction=connection)
        connection.execute("select 1")
    assert payloads(take_all(queue)) == ["first", "kept"]


def test_what_was_sent_after_a_receive_in_one_transaction_is_not_lost(queue: Queue, url: str) -> None:
    """A transaction is not part of its own snapshots: what it sends later must not count as read."""
    queue.send("before")
    with psycopg.connect(url) as connection, psycopg.connect(url, autocommit=True) as other:
        connection.execute("select pg_current_xact_id()")
        other.execute(
            "select pg_current_xact_id()"
        )  # a later transaction has ended before the receive takes its snapshot
        received = connection.execute("select * from penstock.receive_messages('orders', null, 'c', 10)").fetchall()
        assert len(received) == 2
        queue.send("after", transaction=connection)
    assert payloads(take_all(queue)) == ["after"]


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_an_asynchronous_connection_takes_part(url: str, ending: str) -> None:
    async def send() -> list[Any]:
        async with await penstock.connect_async(url) as store:
            queue = await store.queue("orders")
            async with await psycopg.AsyncConnection.connect(url) as connection:
                await connection.execute("select 1")
                await queue.send("from a task", transaction=connection)
                await getattr(connection, ending)()
            return [delivery.json() for delivery in await queue.receive(limit=10)]

    assert asyncio.run(send()) == (["from a task"] if ending == "commit" else [])


def test_a_connection_of_sqlalchemy_takes_part(queue: Queue, url: str) -> None:
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with engine.connect() as connection:
            queue.send("dropped", transaction=connection)
            connection.rollback()
            queue.send("kept", transaction=connection)
            connection.commit()
    finally:
        engine.dispose()
    assert payloads(take_all(queue)) == ["kept"]


def test_something_else_is_refused(queue: Queue, url: str) -> None:
    closed = psycopg.connect(url)
    closed.close()
    with psycopg.connect(fresh_database(migrated=False)) as elsewhere:
        for wrong in (closed, elsewhere, apsw.Connection(":memory:"), "transaction", object()):
            with pytest.raises(InvalidInput, match="transaction"):
                queue.send(1, transaction=wrong)
    assert take_all(queue) == []
