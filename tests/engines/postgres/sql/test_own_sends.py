"""A transaction that receives a message out of order and then sends: the sent message is delivered after its commit."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest

from tests.engines.postgres.sql.conftest import Sql


@pytest.fixture
def caller(postgres_url: str) -> Iterator[Sql]:
    """A transaction whose number is not the newest: another one has committed since."""
    with psycopg.connect(postgres_url) as connection:
        connection.execute("select pg_current_xact_id()")
        with psycopg.connect(postgres_url, autocommit=True) as somebody:
            somebody.execute("select pg_current_xact_id()")
        yield Sql(connection)


def test_a_send_after_a_reschedule_of_a_ready_message(sql: Sql, caller: Sql) -> None:
    first, second = uuid.uuid4(), uuid.uuid4()
    sql("select penstock.create_queue_schema('jobs')")
    sql("call jobs.enqueue('1', %s)", first)
    caller("call jobs.message_reschedule(%s, -1)", first)
    caller("call jobs.enqueue('2', %s)", second)
    caller.connection.commit()
    assert sorted(sql("select message_json from jobs.message_queue")) == [(1,), (2,)]
    assert {sql("select msg_id from jobs.dequeue('c')")[0][0] for _ in range(2)} == {first, second}


def test_a_send_after_a_lock(sql: Sql, caller: Sql) -> None:
    sql("select penstock.create_message_schema('messages')")
    [(number,)] = sql("insert into messages.message (message) values ('1') returning id")
    caller("update messages.message set lock_expires_at = now() + interval '1 minute' where id = %s", number)
    caller("insert into messages.message (message) values ('2')")
    caller.connection.commit()
    assert sorted(sql("select message, lock_expires_at is null from messages.message")) == [(1, False), (2, True)]
    assert sql("select convert_from(payload, 'UTF8') from penstock.receive('messages')") == [("2",)]
