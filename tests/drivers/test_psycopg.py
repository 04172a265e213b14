"""psycopg connections with settings of the calling program."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.json import set_json_loads
from psycopg.types.string import TextLoader

import penstock
from penstock import DuplicateAddress, Outgoing, Queue, StoreError
from penstock.engines.postgres.errors import translate
from tests.conformance.assertions import payloads, take_all

CURSORS = [psycopg.Cursor, psycopg.ClientCursor, psycopg.RawCursor]


@pytest.mark.parametrize("cursor", CURSORS, ids=lambda cursor: cursor.__name__)
def test_any_kind_of_cursor_may_be_the_programs_own(queue: Queue, postgres_url: str, cursor: Any) -> None:
    with psycopg.connect(postgres_url, cursor_factory=cursor, row_factory=dict_row) as connection:
        connection.adapters.register_loader("jsonb", TextLoader)
        connection.adapters.register_loader("uuid", TextLoader)
        set_json_loads(lambda text: text, connection)
        ids = queue.send_many(
            [b"plain", Outgoing(payload={"n": 1}, priority=3, headers={"a": "b"})], transaction=connection
        )
        ids.append(queue.send("chosen", id="7d444840-9dc0-11d1-b245-5ffdce74fad2", transaction=connection))
        connection.rollback()
        again = queue.send(2, transaction=connection)
        assert connection.cursor_factory is cursor
    assert len(ids) == 3
    assert [delivery.id for delivery in take_all(queue)] == [again]


def test_the_object_of_a_transaction_block_may_be_given(queue: Queue, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        with connection.transaction() as transaction:
            queue.send("kept", transaction=transaction)
            with connection.transaction() as inner:
                queue.send("undone", transaction=inner)
                raise psycopg.Rollback
        assert payloads(take_all(queue)) == ["kept"]


@pytest.mark.parametrize("ending", ["commit", "rollback", "savepoint"])
def test_an_asynchronous_transaction_block_may_be_given(postgres_url: str, ending: str) -> None:
    async def send() -> list[Any]:
        async with await penstock.connect_async(postgres_url) as store:
            queue = await store.queue("orders")
            connection = await psycopg.AsyncConnection.connect(postgres_url, cursor_factory=psycopg.AsyncClientCursor)
            async with connection, connection.transaction() as outer:
                await asyncio.gather(*(queue.send("kept", transaction=outer) for _ in range(3)))
                async with connection.transaction() as inner:
                    await queue.send("undone", transaction=inner)
                    if ending == "savepoint":
                        raise psycopg.Rollback
                if ending == "rollback":
                    raise psycopg.Rollback
            return [delivery.json() for delivery in await queue.receive(limit=10)]

    kept = {"commit": ["kept", "kept", "kept", "undone"], "rollback": [], "savepoint": ["kept", "kept", "kept"]}
    assert asyncio.run(send()) == kept[ending]


def test_a_send_that_waits_for_another_task_leaves_the_loop_free(postgres_url: str) -> None:
    """Two tasks send to one address: the second waits until the first has committed, which needs the loop."""

    async def send() -> tuple[str, bool]:
        async with await penstock.connect_async(postgres_url) as store:
            queue = await store.queue("orders")
            first = await psycopg.AsyncConnection.connect(postgres_url)
            second = await psycopg.AsyncConnection.connect(postgres_url)
            async with first, second:
                sent = await queue.send(1, address="desk", transaction=first)
                late = asyncio.create_task(queue.send(2, address="desk", transaction=second))
                await _until_it_waits(postgres_url)
                await first.commit()
                try:
                    await late
                except DuplicateAddress as error:
                    await second.execute("select 1")
                    return sent, error.existing_id == sent
        raise AssertionError("both messages have the address")

    assert asyncio.run(asyncio.wait_for(send(), 30))[1]


def test_a_cancelled_send_leaves_the_connection_to_its_caller(postgres_url: str) -> None:
    async def send() -> list[Any]:
        async with await penstock.connect_async(postgres_url) as store:
            queue = await store.queue("orders")
            first = await psycopg.AsyncConnection.connect(postgres_url)
            second = await psycopg.AsyncConnection.connect(postgres_url)
            async with first, second:
                await queue.send("first", address="desk", transaction=first)
                late = asyncio.create_task(queue.send("late", address="desk", transaction=second))
                await _until_it_waits(postgres_url)
                late.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await late
                await queue.send("after", transaction=second)
                await second.commit()
                await first.commit()
            return sorted([delivery.json() for delivery in await queue.receive(limit=10)])

    assert asyncio.run(asyncio.wait_for(send(), 30)) == ["after", "first"]


async def _until_it_waits(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as watcher:
        while True:
            found = await watcher.execute(
                "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            )
            if await found.fetchone() is not None:
                return
            await asyncio.sleep(0.01)


def test_what_the_driver_refuses_is_not_called_unreachable(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection, pytest.raises(psycopg.ProgrammingError) as refused:
        connection.execute("select %s", [object()])
    told = translate(refused.value, "database payments on db-7.internal")
    assert type(told) is StoreError
    assert "cannot adapt" in str(told)
    assert "cannot be reached" not in str(told)
