"""Sends of the asynchronous client in the caller's transaction."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from penstock.client.aio.queue import AsyncQueue

pytestmark = pytest.mark.anyio


@pytest.fixture
def connection(queue: AsyncQueue, tmp_path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(tmp_path / "store.db"))
    connection.set_busy_timeout(10_000)
    connection.execute("create table mine (value)")
    return connection


async def test_a_send_commits_with_the_callers_transaction(queue: AsyncQueue, connection: apsw.Connection) -> None:
    connection.execute("begin immediate")
    connection.execute("insert into mine values (1)")
    ids = [await queue.send(b"1", transaction=connection)]
    ids += await queue.send_many([b"2", b"3"], transaction=connection)
    assert await queue.peek() == []
    connection.execute("commit")
    assert [message.id for message in await queue.peek()] == ids


async def test_a_send_rolls_back_with_the_callers_transaction(queue: AsyncQueue, connection: apsw.Connection) -> None:
    connection.execute("begin immediate")
    await queue.send(b"1", transaction=connection)
    connection.execute("rollback")
    assert await queue.peek() == []


async def test_a_send_in_the_callers_transaction_does_not_queue_behind_other_sends(
    queue: AsyncQueue, connection: apsw.Connection
) -> None:
    """The caller holds the write lock, and another send waits for it."""
    connection.execute("begin immediate")
    other = asyncio.create_task(queue.send(b"other"))
    await asyncio.sleep(0.05)
    await asyncio.wait_for(queue.send(b"mine", transaction=connection), 60)
    assert not other.done()
    connection.execute("commit")
    await other
    assert [message.payload for message in await queue.peek()] == [b"mine", b"other"]
