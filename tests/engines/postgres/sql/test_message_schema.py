"""The LISTEN/NOTIFY conventions: an insert is a send, an update locks, a delete with an archive row settles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import penstock
from tests.engines.postgres.sql.conftest import Sql, connect, heard

LOCK = """update messages.message set lock_expires_at = current_timestamp + interval '1 minute'
          where id = %s and (lock_expires_at is null or lock_expires_at < current_timestamp) returning *"""
ARCHIVE = """insert into messages.message_archive (created_at, message, result, handled_by, details)
             values (%s, %s, %s, %s, %s) returning id"""


@pytest.fixture
def messages(sql: Sql) -> Sql:
    sql("select penstock.create_message_schema('messages')")
    return sql


@pytest.fixture
def listener(messages: Sql, postgres_url: str) -> Iterator[psycopg.Connection]:
    with connect(postgres_url) as connection:
        connection.execute("listen new_message")
        connection.execute("listen dead_message")
        yield connection


def put(sql: Sql, message: object) -> int:
    [(number,)] = sql("insert into messages.message (message) values (%s) returning id", json.dumps(message))
    assert isinstance(number, int)
    return number


def finish(sql: Sql, number: int, result: str, details: str | None = None) -> int:
    """What a worker of the conventions does at the end: delete and archive in one transaction."""
    with sql.connection.transaction():
        [(created_at, message)] = sql("select created_at, message from messages.message where id = %s", number)
        sql("delete from messages.message where id = %s", number)
        [(archived,)] = sql(ARCHIVE, created_at, json.dumps(message), result, "worker", details)
    assert isinstance(archived, int)
    return archived


def test_an_insert_sends_and_notifies_with_the_id(messages: Sql, listener: psycopg.Connection) -> None:
    first, second = messages("""insert into messages.message (message) values ('["a"]'), ('{"b": 2}') returning id""")
    assert heard(listener, 2) == [("new_message", str(first[0])), ("new_message", str(second[0]))]
    assert messages("select id, message, lock_expires_at from messages.message order by id") == [
        (*first, ["a"], None),
        (*second, {"b": 2}, None),
    ]


def test_an_insert_that_is_rolled_back_sends_nothing(messages: Sql, listener: psycopg.Connection) -> None:
    with messages.connection.transaction(force_rollback=True):
        put(messages, "gone")
    kept = put(messages, "kept")
    assert heard(listener, 1) == [("new_message", str(kept))]
    assert messages("select message from messages.message") == [("kept",)]


def test_the_first_to_update_has_the_lock(messages: Sql, postgres_url: str) -> None:
    number = put(messages, ["work"])
    [(taken, _, message, until)] = messages(LOCK, number)
    assert (taken, message) == (number, ["work"])
    assert messages("select extract(epoch from %s - now()) between 55 and 61", until) == [(True,)]
    assert messages("select lock_expires_at = %s from messages.message", until) == [(True,)]
    other = Sql(connect(postgres_url))
    assert other(LOCK, number) == []
    other.connection.close()


def test_a_worker_locks_any_message_not_only_the_next(messages: Sql, store: penstock.Store) -> None:
    numbers = [put(messages, value) for value in range(5)]
    assert [row[2] for row in messages(LOCK, numbers[3])] == [3]
    assert [row[2] for row in messages(LOCK, numbers[1])] == [1]
    assert [delivery.json() for delivery in store.queue("messages").receive(limit=10)] == [0, 2, 4]


def test_many_workers_lock_each_message_once(messages: Sql, postgres_url: str) -> None:
    numbers = [put(messages, value) for value in range(40)]

    def work(_: int) -> list[int]:
        with connect(postgres_url) as connection:
            mine = Sql(connection)
            return [number for number in numbers if mine(LOCK, number)]

    with ThreadPoolExecutor(4) as pool:
        taken = [number for mine in pool.map(work, range(4)) for number in mine]
    assert sorted(taken) == numbers


def test_nowait_before_the_lock_is_allowed_as_in_the_conventions_own_worker(messages: Sql) -> None:
    number = put(messages, 1)
    with messages.connection.transaction():
        assert messages("select 1 from messages.message where id = %s for update nowait", number) == [(1,)]
        assert len(messages(LOCK, number)) == 1


@pytest.mark.parametrize(
    ("result", "outcome"),
    [("success", "succeeded"), ("rejected", "rejected"), ("failed", "failed"), ("lock_expired", "lease_expired")],
)
def test_delete_and_archive_settle_with_the_workers_result(
    messages: Sql, store: penstock.Store, listener: psycopg.Connection, result: str, outcome: str
) -> None:
    number = put(messages, {"for": result})
    messages(LOCK, number)
    archived = finish(messages, number, result, "details of it")
    assert messages("select id, message, result::text, handled_by, details from messages.message_archive") == [
        (number, {"for": result}, result, "worker", "details of it")
    ]
    assert archived == number
    assert messages("select count(*) from messages.message") == [(0,)]
    [ended] = store.queue("messages").archive()
    assert ended.outcome == outcome
    dead = [] if result == "success" else [("dead_message", str(number))]
    assert heard(listener, 1 + len(dead)) == [("new_message", str(number)), *dead]


def test_the_server_log_warns_of_a_dead_message(messages: Sql) -> None:
    said: list[str] = []
    messages.connection.add_notice_handler(lambda notice: said.append(f"{notice.severity} {notice.message_primary}"))
    number = put(messages, 5)
    messages(LOCK, number)
    finish(messages, number, "rejected", "no")
    assert [
        line
        for line in said
        if line.startswith("WARNING") and f"message_archive.id={number}" in line and "rejected" in line
    ]
    said.clear()
    second = put(messages, 6)
    messages(LOCK, second)
    finish(messages, second, "success")
    assert not [line for line in said if line.startswith("WARNING")]


def test_the_archive_row_may_come_before_the_delete(messages: Sql) -> None:
    number = put(messages, "swapped")
    messages(LOCK, number)
    with messages.connection.transaction():
        [(created_at,)] = messages("select created_at from messages.message where id = %s", number)
        messages(ARCHIVE, created_at, json.dumps("swapped"), "failed", "worker", "E9")
        messages("delete from messages.message where id = %s", number)
    assert messages("select id, result::text, details from messages.message_archive") == [(number, "failed", "E9")]


def test_twins_are_told_apart_by_the_delete(messages: Sql) -> None:
    messages("set penstock.now = '1900000000000000'")  # both are sent in one microsecond
    first, second = (put(messages, 7) for _ in range(2))
    for number in (first, second):
        messages("update messages.message set lock_expires_at = '2100-01-01' where id = %s", number)
    finish(messages, second, "rejected")
    finish(messages, first, "success")
    assert messages("select id, result::text from messages.message_archive order by id") == [
        (first, "success"),
        (second, "rejected"),
    ]


def test_a_delete_alone_is_a_success(messages: Sql, store: penstock.Store) -> None:
    number = put(messages, "done")
    messages(LOCK, number)
    messages("delete from messages.message where id = %s", number)
    assert messages("select id, result::text from messages.message_archive") == [(number, "success")]
    # For a minute an archive row could still say something else.
    messages("select set_config('penstock.now', (penstock.now_us() + 61000000)::text, false)")
    messages("select penstock.sweep()")
    assert messages("select id, result::text from messages.message_archive") == [(number, "success")]
    assert store.queue("messages").stats(group="default").done == 1


def test_a_message_that_nobody_locked_can_be_deleted_as_well(messages: Sql) -> None:
    kept, gone = put(messages, "kept"), put(messages, "gone")
    messages("delete from messages.message where id = %s", gone)
    assert messages("select id from messages.message") == [(kept,)]
    assert messages("select id, result::text, details from messages.message_archive") == [(gone, "rejected", "deleted")]


def test_a_lock_that_ends_is_the_end_of_the_message(messages: Sql, listener: psycopg.Connection) -> None:
    number = put(messages, "slow")
    messages(LOCK, number)
    [(created_at,)] = messages("select created_at from messages.message")
    messages("select set_config('penstock.now', (penstock.now_us() + 61000000)::text, false)")
    assert messages(LOCK.replace("current_timestamp", "timestamptz '2100-01-01'"), number) == []
    messages("select penstock.sweep()")
    assert messages("select id, result::text from messages.message_archive") == [(number, "lock_expired")]
    assert messages("select count(*) from messages.message") == [(0,)]
    with pytest.raises(psycopg.Error, match="lock") as late:
        messages(ARCHIVE, created_at, json.dumps("slow"), "success", "worker", None)
    assert late.value.diag.sqlstate == "PN201"
    assert messages("select count(*) from messages.message_archive") == [(1,)]
    assert heard(listener, 2)[1] == ("dead_message", str(number))


def test_a_lock_can_be_lengthened_and_given_back(messages: Sql) -> None:
    number = put(messages, "again")
    messages(LOCK, number)
    messages("update messages.message set lock_expires_at = now() + interval '5 minutes' where id = %s", number)
    assert messages("select lock_expires_at > now() + interval '4 minutes' from messages.message") == [(True,)]
    messages("update messages.message set lock_expires_at = null where id = %s", number)
    assert messages("select lock_expires_at from messages.message") == [(None,)]
    assert len(messages(LOCK, number)) == 1


def test_unhandled_messages_are_announced_again_in_every_minute(messages: Sql, listener: psycopg.Connection) -> None:
    """pg_cron comes once in each minute of the clock, sometimes less than sixty seconds after the last time."""
    number, locked = put(messages, "waiting"), put(messages, "locked")
    messages("update messages.message set lock_expires_at = '2100-01-01' where id = %s", locked)
    heard(listener, 2)
    [(minute,)] = messages("select (extract(epoch from date_trunc('minute', now())) + 60)::bigint * 1000000")
    for milliseconds in (40, 60_010, 120_030):
        messages("select set_config('penstock.now', %s, false)", str(minute + milliseconds * 1000))
        messages("select penstock.sweep()")
        assert heard(listener, 1) == [("new_message", str(number))]
    messages("select set_config('penstock.now', %s, false)", str(minute + 179_990_000))
    messages("select penstock.sweep()")
    last = put(messages, "marker")
    assert heard(listener, 1) == [("new_message", str(last))], "not more often than once in a minute"


def test_python_sends_and_receives_the_same_messages(
    messages: Sql, store: penstock.Store, listener: psycopg.Connection
) -> None:
    queue = store.queue("messages")
    sent = queue.send({"from": "python"})
    [(number, message)] = messages("select id, message from messages.message")
    assert message == {"from": "python"}
    assert heard(listener, 1) == [("new_message", str(number))]
    [delivery] = queue.receive(consumer="worker-1")
    assert delivery.id == sent
    queue.send_many([b"plain", b"bytes"])
    assert [channel for channel, _ in heard(listener, 2)] == ["new_message", "new_message"]
    assert len(queue.receive(limit=2)) == 2
    assert messages("select bool_and(lock_expires_at is not null) from messages.message") == [(True,)]
    delivery.reject("not mine")
    assert heard(listener, 1) == [("dead_message", str(number))]
    assert messages("select result::text, handled_by, details from messages.message_archive") == [
        ("rejected", "worker-1", "not mine")
    ]


def test_columns_that_the_server_sets_are_refused(messages: Sql) -> None:
    for column, value in {"id": "5", "created_at": "now()", "lock_expires_at": "now()"}.items():
        with pytest.raises(psycopg.Error, match=column):
            messages(f"insert into messages.message ({column}, message) values ({value}, '1')")
    for message in ("null", "default"):
        with pytest.raises(psycopg.errors.NotNullViolation):
            messages(f"insert into messages.message (message) values ({message})")
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        messages("""insert into messages.message (message) values ('{"broken"')""")
    with pytest.raises(psycopg.Error, match="message"):
        messages(f"update messages.message set message = '2' where id = {put(messages, 1)}")
    assert messages("select message from messages.message") == [(1,)]
    with pytest.raises(psycopg.Error, match="triumph"):
        messages(ARCHIVE, "now", "1", "triumph", "worker", None)
