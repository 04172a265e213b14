"""Making and removing schemas of other conventions: names are only data, and no schema disturbs another."""

from __future__ import annotations

import psycopg
import pytest

import penstock
from tests.engines.postgres.sql.conftest import Sql, connect, heard

ODD_NAMES = [
    "Mixed Case",
    "quo\"te'd",
    "semi; drop schema penstock cascade; --",
    "dollar$call$text$body$",
    "percent %I %L %s %2$L",
    "back\\slash",
    "käse-チーズ-🧀",
    "ü" * 31 + "x",
    "select",
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_name_that_postgres_takes_is_only_a_name(sql: Sql, store: penstock.Store, name: str) -> None:
    quoted = psycopg.sql.Identifier(name).as_string(sql.connection)
    messages = f"m{name}"[:31]
    quoted_messages = psycopg.sql.Identifier(messages).as_string(sql.connection)
    sql("select penstock.create_queue_schema(%s)", name)
    sql("select penstock.create_message_schema(%s)", messages)
    # A percent sign stands for itself only in a statement without parameters.
    sql(f"""call {quoted}.enqueue('{{"n": 1}}')""")
    assert sql(f"select msg_json from {quoted}.dequeue('c')") == [({"n": 1},)]
    assert sql(f"select count(*) from {quoted}.message_audit") == [(2,)]
    sql(f"update {quoted}.queue_configuration set setting_value = '8' where setting_name = 'max_retries'")
    sql(f"insert into {quoted_messages}.message (message) values ('2')")
    assert sql(f"select message from {quoted_messages}.message") == [(2,)]
    assert {info.name for info in store.queues()} == {name, messages}
    sql("select penstock.drop_queue_schema(%s)", name)
    sql("select penstock.drop_message_schema(%s)", messages)
    assert sql("select count(*) from pg_namespace where nspname in (%s, %s)", name, messages) == [(0,)]


@pytest.mark.parametrize("name", ["", None, "x" * 64, "ü" * 32, "pg_mine", "penstock", "information_schema", "a\nb"])
@pytest.mark.parametrize("kind", ["queue", "message"])
def test_a_name_that_cannot_be_is_refused(sql: Sql, name: str | None, kind: str) -> None:
    with pytest.raises(psycopg.Error, match="schema name") as refused:
        sql(f"select penstock.create_{kind}_schema(%s)", name)
    assert refused.value.diag.sqlstate == "PN101"
    assert refused.value.diag.message_hint
    assert sql("select count(*) from penstock.compat_schema") == [(0,)]
    assert sql("select count(*) from penstock.queue") == [(0,)]


def test_a_schema_that_exists_is_never_replaced(sql: Sql) -> None:
    sql("create schema mine")
    sql("create table mine.precious as select 1 as x")
    with pytest.raises(psycopg.Error, match="mine is there already"):
        sql("select penstock.create_queue_schema('mine')")
    assert sql("select * from mine.precious") == [(1,)]
    sql("select penstock.create_queue_schema('jobs')")
    sql("call jobs.enqueue('1')")
    for kind in ("queue", "message"):
        with pytest.raises(psycopg.Error, match="jobs is there already"):
            sql(f"select penstock.create_{kind}_schema('jobs')")
    assert sql("select count(*) from jobs.message_queue") == [(1,)]


def test_only_a_schema_made_here_is_dropped(sql: Sql) -> None:
    sql("create schema mine")
    sql("select penstock.create_message_schema('messages')")
    for name in ("mine", "messages", "public", "nowhere"):
        with pytest.raises(psycopg.Error, match=f"no queue schema '{name}'"):
            sql("select penstock.drop_queue_schema(%s)", name)
    assert sql("select count(*) from pg_namespace where nspname in ('mine', 'messages', 'public')") == [(3,)]


def test_dropping_keeps_the_messages_unless_they_are_to_be_flushed(sql: Sql, store: penstock.Store) -> None:
    sql("select penstock.create_queue_schema('jobs')")
    sql("call jobs.enqueue('11')")
    sql("select penstock.drop_queue_schema('jobs')")
    [message] = store.queue("jobs").peek()
    assert message.json() == 11
    sql("select penstock.create_queue_schema('jobs')")
    assert sql("select message_json from jobs.message_queue") == [(11,)]
    sql("select penstock.drop_queue_schema('jobs', flush => true)")
    assert store.queue("jobs").peek() == []


def test_a_schema_dropped_by_hand_can_be_made_again(sql: Sql) -> None:
    sql("select penstock.create_queue_schema('jobs')")
    sql("drop schema jobs cascade")
    sql("select penstock.create_queue_schema('jobs')")
    sql("call jobs.enqueue('12')")
    assert sql("select msg_json from jobs.dequeue('c')") == [(12,)]


def test_a_schema_can_be_renamed(sql: Sql) -> None:
    sql("select penstock.create_queue_schema('jobs')")
    sql("alter schema jobs rename to tasks")
    sql("call tasks.enqueue('13')")
    assert sql("select msg_json from tasks.dequeue('c')") == [(13,)]
    sql("select penstock.create_queue_schema('jobs', 'other')")
    sql("select penstock.drop_queue_schema('tasks')")
    assert sql("select schema_name from penstock.compat_schema") == [("jobs",)]


def test_an_upgrade_writes_the_functions_of_the_schemas_again(sql: Sql, store: penstock.Store) -> None:
    sql("select penstock.create_queue_schema('jobs')")
    sql("select penstock.create_message_schema('messages')")
    sql("select penstock.create_queue_schema('gone')")
    sql("drop schema gone cascade")
    sql("call jobs.enqueue('26')")
    sql("create or replace procedure jobs.reset_queue() language sql as 'select 1 / 0'")
    sql("alter schema jobs rename to tasks")
    sql("update penstock.store set functions_digest = 'of an older version'")
    store.migrate()
    assert sql("select message_json from tasks.message_queue") == [(26,)]
    sql("call tasks.reset_queue()")
    assert sql("select count(*) from tasks.message_queue") == [(0,)]


def test_a_queue_that_exists_keeps_its_policy(sql: Sql, store: penstock.Store) -> None:
    queue = store.queue("a queue with a long name", lease_seconds=5, max_retries=2)
    queue.send({"n": 14})
    sql("select penstock.create_queue_schema('jobs', 'a queue with a long name')")
    assert (queue.policy().lease_seconds, queue.policy().max_retries, queue.policy().ttl_seconds) == (5, 2, None)
    settings = dict(sql("select setting_name, setting_value from jobs.queue_configuration"))
    assert (settings["item_ttl"], settings["lease_duration"]) == ("0", "5")
    assert sql("select msg_json from jobs.dequeue('c')") == [({"n": 14},)]


def test_two_queue_schemas_never_disturb_each_other(sql: Sql) -> None:
    for name in ("one", "two"):
        sql(f"select penstock.create_queue_schema('{name}')")
        sql(f"call {name}.enqueue('\"{name}\"')")
    sql("update one.queue_configuration set setting_value = '1' where setting_name = 'max_retries'")
    [(message_id,)] = sql("select msg_id from one.dequeue('c')")
    with pytest.raises(psycopg.Error, match="did not own"):
        sql("call two.message_ack(%s, 'c')", message_id)
    with pytest.raises(psycopg.Error, match="no live message"):
        sql("call two.message_reschedule(%s)", message_id)
    sql("call one.message_rej(%s, 'c')", message_id)
    with pytest.raises(psycopg.Error, match="No Dead Letter"):
        sql("call two.recover_dead_letter(%s)", message_id)
    sql("call one.reset_queue()")
    assert sql("select message_json from two.message_queue") == [("two",)]
    assert sql("select message_state_id from two.message_audit") == [(1,)]
    assert sql("select setting_value from two.queue_configuration where setting_name = 'max_retries'") == [("7",)]
    sql("select penstock.drop_queue_schema('one')")
    assert sql("select msg_json from two.dequeue('c')") == [("two",)]


def test_two_message_schemas_share_the_channel_and_nothing_else(sql: Sql, postgres_url: str) -> None:
    with connect(postgres_url) as listener:
        listener.execute("listen new_message")
        ids = []
        for name in ("one", "two"):
            sql(f"select penstock.create_message_schema('{name}')")
            ids += sql(f"insert into {name}.message (message) values ('\"{name}\"') returning id")
        assert [payload for _, payload in heard(listener, 2)] == [str(number) for (number,) in ids]
    [(first,), (second,)] = ids
    assert first != second, "a worker of one would lock a message of its own for the other's notification"
    for statement in (
        "update two.message set lock_expires_at = now() + interval '1 minute' where id = %s returning id",
        "delete from two.message where id = %s returning id",
    ):
        assert sql(statement, first) == []
    assert sql("select message, lock_expires_at from one.message") == [("one", None)]
