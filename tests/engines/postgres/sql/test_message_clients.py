"""Programs written for the LISTEN/NOTIFY conventions run unchanged, except for the URL."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

import penstock
from tests.engines.postgres.sql.conftest import Sql, connect
from tests.engines.postgres.sql.test_message_schema import ARCHIVE, LOCK, finish, put
from tests.servers.clients.client_programs import node_words

WORKER = Path(__file__).with_name("listening_worker.py")
STATUSES = ("success", "failed", "rejected", "lock_expired")


@pytest.fixture
def messages(sql: Sql) -> Sql:
    sql("select penstock.create_message_schema('messages')")
    return sql


class Program:
    """A running program that prints a line for each thing it did."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "TZ": "UTC"})

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it ended with code {self.process.wait()}"
        return line.strip()

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def running(*words: str) -> Iterator[Program]:
    program = Program(*words)
    try:
        assert "listening" in program.line()
        yield program
    finally:
        program.stop()


def worker(url: str, channel: str) -> contextlib.AbstractContextManager[Program]:
    return running(sys.executable, str(WORKER), f"{url}&timezone=UTC", channel)


def later(sql: Sql, seconds: float) -> None:
    """Time passes, for this session."""
    sql("select set_config('penstock.now', (penstock.now_us() + %s * 1000000)::bigint::text, false)", seconds)


def test_a_worker_written_from_the_diagram_and_one_for_dead_messages(messages: Sql, postgres_url: str) -> None:
    expected = {
        '["work"]': "success",
        '["fail"]': "failed",
        '{"not": "a list"}': "rejected",
        '["timeout"]': "lock_expired",
        '["raise"]': "failed",
        '["work", 2]': "success",
    }
    with worker(postgres_url, "new") as new, worker(postgres_url, "dead") as dead:
        for message in expected:
            messages("insert into messages.message (message) values (%s::jsonb)", message)
        done = [json.loads(new.line()) for _ in expected]
        died = [json.loads(dead.line()) for result in expected.values() if result != "success"]
    assert {json.dumps(each["message"]): each["result"] for each in done} == expected
    assert sorted(each["id"] for each in died) == sorted(each["id"] for each in done if each["result"] != "success")
    assert messages("select count(*) from messages.message") == [(0,)]
    assert messages("select handled_by, count(*) from messages.message_archive group by 1") == [("worker", 6)]


def test_a_worker_in_node_knows_times_to_the_millisecond(messages: Sql, postgres_url: str) -> None:
    with running(*node_words("listening_worker.mjs", f"{postgres_url}&options=-ctimezone%3DUTC", 8)) as program:
        for number in range(8):
            put(messages, {"number": number, "result": STATUSES[number % 4]})
        assert json.loads(program.line()) == [[number, STATUSES[number % 4]] for number in range(8)]
    assert messages("select count(*) from messages.message_archive") == [(8,)]


@pytest.mark.parametrize("status", STATUSES)
def test_the_result_of_a_worker_counts_after_its_lock_until_the_sweep_has_come(
    messages: Sql, store: penstock.Store, status: str
) -> None:
    number = put(messages, ["slow"])
    messages(LOCK, number)
    later(messages, 61)
    finish(messages, number, status, "late")
    assert messages("select id, result::text, handled_by, details from messages.message_archive") == [
        (number, status, "worker", "late")
    ]
    assert messages("select count(*) from messages.message") == [(0,)]
    messages("select penstock.sweep()")
    assert messages("select count(*) from messages.message_archive") == [(1,)]
    assert len(list(store.queue("messages").archive())) == 1


@pytest.mark.parametrize("status", STATUSES)
def test_a_worker_that_comes_after_the_sweep_finds_the_end_that_was_written(messages: Sql, status: str) -> None:
    number = put(messages, ["slow"])
    put(messages, ["slow"])
    [(_, created_at, _, _)] = messages(LOCK, number)
    later(messages, 61)
    messages("select penstock.sweep()")
    before = messages("select * from messages.message_archive")
    assert messages("delete from messages.message where id = %s returning id", number) == []
    if status == "success":
        with pytest.raises(psycopg.Error, match="archived it as lock_expired") as late:
            messages(ARCHIVE, created_at, '["slow"]', status, "worker", None)
        assert late.value.diag.sqlstate == "PN201"
    else:
        assert (
            messages(ARCHIVE.replace("returning id", "returning *"), created_at, '["slow"]', status, "w", "x") == before
        )
    assert messages("select * from messages.message_archive") == before


@pytest.mark.parametrize("status", [*STATUSES, None])
def test_a_worker_that_meets_an_open_sweep_waits_for_the_end_that_it_writes(
    messages: Sql, postgres_url: str, status: str | None
) -> None:
    number = put(messages, ["slow"])
    messages(LOCK, number)

    def end() -> None:
        if status is None:
            messages("delete from messages.message where id = %s", number)
        else:
            finish(messages, number, status)

    with connect(postgres_url) as connection, ThreadPoolExecutor(1) as threads:
        sweeper = Sql(connection)
        for session in (messages, sweeper):
            later(session, 61)
        with connection.transaction():
            sweeper("select penstock.sweep()")
            late = threads.submit(end)
            ends = time.monotonic() + 60
            while not sweeper("select 1 from pg_stat_activity where pg_backend_pid() = any (pg_blocking_pids(pid))"):
                assert time.monotonic() < ends, "the worker did not wait for the sweep"
                time.sleep(0.005)
        if status == "success":
            with pytest.raises(psycopg.Error, match="archived it as lock_expired"):
                late.result()
        else:
            late.result()
    assert messages("select id, result::text from messages.message_archive") == [(number, "lock_expired")]


def test_a_delete_alone_after_the_lock_says_that_the_lock_expired(messages: Sql) -> None:
    number = put(messages, 1)
    messages(LOCK, number)
    later(messages, 61)
    messages("delete from messages.message where id = %s", number)
    assert messages("select id, result::text from messages.message_archive") == [(number, "lock_expired")]


def test_a_lock_that_has_ended_is_given_to_nobody_else(messages: Sql) -> None:
    number = put(messages, 1)
    messages(LOCK, number)
    later(messages, 61)
    assert messages(LOCK.replace("current_timestamp", "timestamp '2100-01-01'"), number) == []


def test_a_lock_that_ends_before_the_statement_has_run_locks_nothing(messages: Sql) -> None:
    """On a busy server a short lock may be over by then: the worker goes on with the next notification."""
    number = put(messages, 1)
    slow = LOCK.replace("1 minute", "10 milliseconds").replace("id = %s", "id = %s and pg_sleep(0.02) is not null")
    assert messages(slow, number) == []
    with pytest.raises(psycopg.Error, match="is in the past"):
        messages(LOCK.replace("+ interval", "- interval"), number)
    assert len(messages(LOCK, number)) == 1


@pytest.mark.parametrize("end", ["infinity", "20000-01-01"])
def test_a_lock_without_an_end_within_reason_is_refused(messages: Sql, end: str) -> None:
    number = put(messages, 1)
    with pytest.raises(psycopg.Error, match=f"lock_expires_at {end}.* is more than a century ahead"):
        messages(LOCK.replace("current_timestamp + interval '1 minute'", f"timestamp '{end}'"), number)
    assert len(messages(LOCK, number)) == 1


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Pacific/Auckland"])
def test_times_are_in_the_time_zone_of_the_session(messages: Sql, postgres_url: str, zone: str) -> None:
    """The statements of the conventions compare and assign such columns in the time zone of the session."""
    messages(f"set timezone = '{zone}'")
    number = put(messages, {"in": zone})
    [(_, created_at, _, until)] = messages(LOCK, number)
    assert created_at.tzinfo is None
    [(local, kinds)] = messages(
        "select localtimestamp, (select array_agg(distinct pg_typeof(one)::text) from unnest(array[created_at, "
        "lock_expires_at]) as one) from messages.message"
    )
    assert kinds == ["timestamp without time zone"]
    assert timedelta(seconds=50) < until - local <= timedelta(seconds=61)
    assert timedelta(0) <= local - created_at < timedelta(seconds=10)
    # A session in another time zone sees the same moment, and no free lock.
    with connect(postgres_url, options="-ctimezone=Asia/Tokyo") as connection:
        other = Sql(connection)
        assert other("select lock_expires_at > current_timestamp + interval '40 seconds' from messages.message") == [
            (True,)
        ]
        assert other(LOCK, number) == []
    finish(messages, number, "failed")
    [(created, archived)] = messages("select created_at, archived_at from messages.message_archive")
    assert (created, archived.tzinfo) == (created_at, None)


def test_a_naive_time_in_utc_can_be_compared_where_the_session_is_in_utc(messages: Sql) -> None:
    messages("set timezone = 'UTC'")
    number = put(messages, 1)
    [(_, _, _, until)] = messages(LOCK, number)
    assert until > datetime.now(UTC).replace(tzinfo=None)


def test_the_type_of_results_can_be_named_without_a_schema(messages: Sql) -> None:
    insert = """insert into messages.message_archive (created_at, message, result, handled_by)
                values (%s, '1', {status}, 'worker')"""
    for status in ("'failed'::message_status", "cast('rejected' as message_status)", "'failed'"):
        number = put(messages, 1)
        [(_, created_at, _, _)] = messages(LOCK, number)
        messages(insert.format(status=status), created_at)
    assert messages("select count(*) from messages.message_archive where result <> 'success'::message_status") == [(3,)]
    messages("select penstock.drop_message_schema('messages')")
    assert messages("select to_regtype('public.message_status')") == [(None,)]


def test_a_type_of_that_name_in_public_is_used_if_it_fits_and_stays(sql: Sql) -> None:
    sql("create type public.message_status as enum ('success', 'failed', 'rejected', 'lock_expired')")
    sql("select penstock.create_message_schema('messages')")
    assert sql("select count(*) from messages.message_archive where result = 'failed'::message_status") == [(0,)]
    sql("select penstock.drop_message_schema('messages')")
    sql("drop type public.message_status")


def test_another_type_of_that_name_in_public_is_left_alone(sql: Sql, postgres_url: str) -> None:
    sql("create type public.message_status as enum ('mine')")
    sql("select penstock.create_message_schema('messages')")
    finished = put(sql, 1)
    sql(LOCK, finished)
    finish(sql, finished, "failed")
    with connect(postgres_url, options="-csearch_path=messages") as connection:
        assert Sql(connection)("select count(*) from message_archive where result = 'failed'::message_status") == [(1,)]
    sql("select penstock.drop_message_schema('messages')")
    assert sql("select 'mine'::message_status::text") == [("mine",)]
    sql("drop type public.message_status")


CLEAN = "DELETE FROM messages.message; DELETE FROM messages.message_archive;"


@pytest.mark.parametrize("transactions", [1, 2])
def test_the_tables_are_cleared_by_script(messages: Sql, store: penstock.Store, transactions: int) -> None:
    numbers = [put(messages, number) for number in range(8)]
    for number, status in zip(numbers, STATUSES, strict=False):
        messages(LOCK, number)
        finish(messages, number, status)
    messages(LOCK, numbers[4])  # locked
    messages(
        "update messages.message set lock_expires_at = clock_timestamp() + interval '10 ms' where id = %s", numbers[5]
    )
    for script in [CLEAN] if transactions == 1 else CLEAN.split("; "):
        messages(script)
    assert messages("select count(*) from messages.message") == [(0,)]
    assert messages("select count(*) from messages.message_archive") == [(0,)]
    messages("select penstock.sweep()")
    assert messages("select count(*) from messages.message_archive") == [(0,)]
    stats = store.queue("messages").stats(group="default")
    assert (stats.available, stats.in_progress, stats.dead) == (0, 0, 0)
    again = put(messages, "again")
    assert len(messages(LOCK, again)) == 1


def test_one_row_of_the_archive_is_deleted_alone(messages: Sql) -> None:
    kept, gone = put(messages, 1), put(messages, 2)
    for number in (kept, gone):
        messages(LOCK, number)
        finish(messages, number, "success")
    assert messages("delete from messages.message_archive where id = %s returning message", gone) == [(2,)]
    assert messages("select id from messages.message_archive") == [(kept,)]


def test_what_another_group_has_not_read_is_not_cleared(messages: Sql, store: penstock.Store) -> None:
    queue = store.queue("messages")
    first = put(messages, 1)
    assert len(queue.receive(group="auditors", consumer="a")) == 1
    messages(LOCK, first)
    finish(messages, first, "success")
    with pytest.raises(psycopg.Error, match="not finished in group 'auditors'") as refused:
        messages("delete from messages.message_archive")
    assert refused.value.diag.sqlstate == "PN200"
    assert messages("select id from messages.message_archive") == [(first,)]
