"""Workers of the LISTEN/NOTIFY conventions that delete in one transaction and archive in the next, as drivers with
autocommit do: the diagram draws two arrows and no transaction."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import penstock
from tests.engines.postgres.sql.conftest import Sql, connect, heard
from tests.engines.postgres.sql.test_message_clients import STATUSES, later
from tests.engines.postgres.sql.test_message_schema import ARCHIVE, LOCK, put

DELETE = "delete from messages.message where id = %s"
ENDED = "select id, result::text, handled_by, details from messages.message_archive order by id"


@pytest.fixture
def messages(sql: Sql) -> Sql:
    sql("select penstock.create_message_schema('messages')")
    return sql


@pytest.fixture
def other(messages: Sql, postgres_url: str) -> Iterator[Sql]:
    with connect(postgres_url) as connection:
        yield Sql(connection)


def lock(sql: Sql, message: object) -> tuple[int, object]:
    number = put(sql, message)
    [(_, created_at, _, _)] = sql(LOCK, number)
    return number, created_at


@pytest.mark.parametrize("status", STATUSES)
def test_the_archive_row_may_come_in_the_next_transaction(
    messages: Sql, other: Sql, store: penstock.Store, status: str
) -> None:
    other("listen dead_message")
    number, created_at = lock(messages, ["work"])
    messages(DELETE, number)
    assert other("select count(*) from messages.message") == [(0,)]
    assert messages(ARCHIVE, created_at, '["work"]', status, "worker", "why") == [(number,)]
    assert messages(ENDED) == [(number, status, "worker", "why")]
    later(messages, 200)
    messages("select penstock.sweep()")
    assert messages(ENDED) == [(number, status, "worker", "why")]
    assert len(list(store.queue("messages").archive())) == 1
    if status != "success":
        assert heard(other.connection, 1) == [("dead_message", str(number))]


def test_the_archive_row_may_come_through_another_connection_of_a_pool(messages: Sql, other: Sql) -> None:
    """Twins that are deleted by two connections: each archive row ends one of them."""
    for session in (messages, other):
        session("set penstock.now = '1900000000000000'")  # both are sent in one microsecond
    numbers = [put(messages, 7) for _ in range(2)]
    for number in numbers:
        messages("update messages.message set lock_expires_at = '2100-01-01' where id = %s", number)
    [(created_at,)] = messages("select distinct created_at from messages.message")
    messages(DELETE, numbers[1])
    other(DELETE, numbers[0])
    for session, status in ((other, "failed"), (messages, "rejected")):
        session(ARCHIVE, created_at, "7", status, "worker", None)
    assert sorted(result for _, result, _, _ in messages(ENDED)) == ["failed", "rejected"]
    assert messages("select count(*) from penstock.compat_removal") == [(0,)]


def test_a_sweep_between_the_two_transactions_ends_nothing(messages: Sql) -> None:
    number, created_at = lock(messages, ["work"])
    messages(
        "update messages.message set lock_expires_at = clock_timestamp() + interval '2 seconds' where id = %s", number
    )
    messages(DELETE, number)
    later(messages, 59)
    messages("select penstock.sweep()")
    messages(ARCHIVE, created_at, '["work"]', "failed", "worker", "late, but not too late")
    assert messages(ENDED) == [(number, "failed", "worker", "late, but not too late")]


def test_without_an_archive_row_the_sweep_ends_it_as_a_success_after_a_minute(
    messages: Sql, store: penstock.Store
) -> None:
    number, created_at = lock(messages, ["work"])
    messages(DELETE, number)
    [(before,)] = messages("select archived_at from messages.message_archive")
    assert [row[1] for row in messages(ENDED)] == ["success"]
    assert messages("select archived_at from messages.message_archive") == [(before,)]
    later(messages, 61)
    messages("select penstock.sweep()")
    assert [row[:2] for row in messages(ENDED)] == [(number, "success")]
    assert store.queue("messages").stats(group="default").done == 1
    assert messages("select count(*) from penstock.compat_removal") == [(0,)]
    with pytest.raises(psycopg.Error, match="archived as success after a minute") as late:
        messages(ARCHIVE, created_at, '["work"]', "failed", "worker", None)
    assert late.value.diag.sqlstate == "PN201"


def test_of_two_who_delete_at_once_one_deletes(messages: Sql, other: Sql, postgres_url: str) -> None:
    number, created_at = lock(messages, ["work"])
    with connect(postgres_url) as connection, ThreadPoolExecutor(1) as threads:
        watcher = Sql(connection)
        with messages.connection.transaction():
            assert messages(DELETE + " returning id", number) == [(number,)]
            second = threads.submit(other, DELETE + " returning id", number)
            ends = time.monotonic() + 60
            first = messages.connection.info.backend_pid
            while not watcher("select 1 from pg_stat_activity where %s = any (pg_blocking_pids(pid))", first):
                assert time.monotonic() < ends, "the second did not wait for the first"
                time.sleep(0.005)
        assert second.result() == []
    assert other(ARCHIVE, created_at, '["work"]', "failed", "worker", None) == [(number,)]


def test_a_dropped_schema_leaves_no_deleted_message_locked(messages: Sql, store: penstock.Store) -> None:
    number, _ = lock(messages, ["work"])
    messages(DELETE, number)
    messages("select penstock.drop_message_schema('messages')")
    stats = store.queue("messages").stats(group="default")
    assert (stats.done, stats.in_progress) == (1, 0)


@pytest.mark.parametrize("in_archive", [{"card": "***"}, {"card": 4111}])
def test_an_archive_row_belongs_to_the_only_message_that_its_transaction_deleted(
    messages: Sql, in_archive: object
) -> None:
    """With a time of its own, and with a message that the worker has made unreadable: what was sent is shown."""
    number, _ = lock(messages, {"card": 4111})
    with messages.connection.transaction():
        messages(DELETE, number)
        messages(ARCHIVE.replace("%s", "now()", 1), json.dumps(in_archive), "rejected", "worker", "refused")
    assert messages("select id, message, result::text from messages.message_archive") == [
        (number, {"card": 4111}, "rejected")
    ]


def test_an_archive_row_that_could_be_of_several_messages_is_refused(messages: Sql) -> None:
    numbers = [lock(messages, {"card": number})[0] for number in range(2)]
    with messages.connection.transaction(force_rollback=True):
        messages("delete from messages.message where id = any (%s)", numbers)
        with pytest.raises(psycopg.Error, match="this archive row could be of"):
            messages(ARCHIVE.replace("%s", "now()", 1), '"***"', "rejected", "worker", None)
    assert messages("select count(*) from messages.message") == [(2,)]
