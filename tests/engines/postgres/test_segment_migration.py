"""A store whose log was split into segments becomes one with plain tables, whatever state the segments are in."""

from __future__ import annotations

import psycopg

import penstock
from penstock import Queue
from penstock.engines.postgres import migration
from tests.engines.postgres.earlier import earlier_store, receive, send

STEPS = 10


def payloads(queue: Queue) -> list[str]:
    return [delivery.payload.decode() for delivery in queue.receive(limit=100)]


def events(queue: Queue, payload: str) -> list[str]:
    [message_id] = {one.message.id for one in queue.archive(limit=100) if one.message.payload == payload.encode()}
    return [entry.event for entry in queue.audit(message_id)]


def test_rows_of_all_segments_are_gathered_and_nothing_is_delivered_twice() -> None:
    with earlier_store(STEPS) as (url, connection):
        send(connection, 0, "carried over")
        send(connection, 1, "first", "second")
        receive(connection, 1, 1, 1, 3)
        connection.execute(
            "update penstock.segment set sealed = pg_snapshot_xmax(pg_current_snapshot()) where segment = 1"
        )
        connection.execute("update penstock.segment set sealed = null where segment = 2")
        connection.execute("select setval('penstock.segment_number', 1)")
        send(connection, 2, "third")
        receive(connection, 2, 2, 4, 4)
        send(connection, 2, "fourth", "fifth")
        with penstock.connect(url) as store:
            assert "011_plain_tables" in store.migrate()
            queue = store.queue("orders")
            assert payloads(queue) == ["fourth", "fifth"]
            assert [events(queue, payload) for payload in ("carried over", "second", "third")] == 3 * [
                ["send", "receive", "ack"]
            ]
            assert (queue.stats("default").done, queue.stats("default").lag) == (4, 0)
            assert store.migrate() == []


def test_a_row_that_was_carried_over_and_is_still_where_it_was_is_one_message() -> None:
    with earlier_store(STEPS) as (url, connection):
        send(connection, 1, "first", "second")
        receive(connection, 1, 1, 1, 2)
        copy_to_segment_0(connection)
        send(connection, 1, "third")
        with penstock.connect(url) as store:
            store.migrate()
            queue = store.queue("orders")
            assert payloads(queue) == ["third"]
            assert [one.message.payload for one in queue.archive(limit=100)] == [b"second", b"first"]
            assert events(queue, "second") == ["send", "receive", "ack"]


def test_messages_in_a_segment_that_was_thought_to_be_empty_are_delivered_once() -> None:
    """Two sweeps were undone: the segment that was written in between is not in the list of those that have rows."""
    with earlier_store(STEPS) as (url, connection):
        send(connection, 1, "first")
        receive(connection, 1, 1, 1, 1)
        connection.execute("select setval('penstock.segment_number', 1)")
        send(connection, 2, "seen")
        receive(connection, 2, 2, 2, 2)
        send(connection, 2, "lost 1", "lost 2")
        connection.execute("select setval('penstock.segment_number', 2)")
        send(connection, 3, "last")
        receive(connection, 3, 3, 5, 5)
        connection.execute("update penstock.claim set passed = 3 where number = 3")
        send(connection, 3, "unread")
        with penstock.connect(url) as store:
            store.migrate()
            queue = store.queue("orders")
            assert queue.stats("default").available + queue.stats("default").redo == 3
            assert payloads(queue) == ["lost 1", "lost 2", "unread"]
            assert queue.stats("default").lag == 0
            assert payloads(queue) == []


def test_messages_whose_entries_were_deleted_too_early_are_told_and_not_delivered_again() -> None:
    """Rotation destroyed the claims and steps of messages that another group had not read yet."""
    with earlier_store(STEPS) as (url, connection):
        send(connection, 0, "acked 1", "acked 2")
        receive(connection, 1, 1, 1, 2)
        connection.execute("truncate penstock.claim, penstock.step")
        connection.execute("update penstock.segment set sealed = null where segment = 0")
        send(connection, 1, "third")
        receive(connection, 1, 2, 3, 3)
        send(connection, 1, "fourth")
        with penstock.connect(url) as store:
            store.migrate()
            [finding] = [check for check in store.doctor() if "passed by group" in check.finding]
            assert (finding.name, finding.level) == ("lost entries", "warning")
            assert "2 messages of queue 'orders'" in finding.finding
            assert not any(repair.done for repair in store.repair())
            assert payloads(store.queue("orders")) == ["fourth"]


def test_two_claims_with_one_number_do_not_stop_it() -> None:
    """The server crashed, and the current segment went back: the cursor was looked for where it was not."""
    with earlier_store(STEPS) as (url, connection):
        send(connection, 1, "first")
        receive(connection, 1, 1, 1, 1)
        send(connection, 2, "second")
        receive(connection, 2, 2, 2, 2)
        receive(connection, 1, 2, 2, 2)
        send(connection, 1, "third")
        with penstock.connect(url) as store:
            store.migrate()
            queue = store.queue("orders")
            assert payloads(queue) == ["third"]
            assert events(queue, "second") == ["send", "receive", "ack", "receive", "ack"]


def test_views_of_other_schemas_outlive_it() -> None:
    with earlier_store(STEPS) as (url, connection), penstock.connect(url) as store:
        send(connection, 1, "first")
        connection.execute(dict(migration.functions())["functions/messages/ids"].encode())
        connection.execute(
            "create view penstock.message as select q.name as queue, penstock.made_id(m.created_at, 1, m.seq) as id, "
            "m.seq as position, m.payload from penstock.queue as q join penstock.lane using (queue_id) "
            "join penstock.log as m using (lane_id)"
        )
        connection.execute("create view public.mine as select payload from penstock.message where queue = 'orders'")
        store.migrate()
        assert connection.execute("select * from public.mine").fetchall() == [(b"first",)]


def copy_to_segment_0(connection: psycopg.Connection) -> None:
    for table in ("log", "claim", "step"):
        columns = connection.execute(
            "select string_agg(attname, ', ') from pg_attribute "
            "where attrelid = %s::regclass and attnum > 0 and attname <> 'segment'",
            [f"penstock.{table}"],
        ).fetchone()
        assert columns is not None
        others = columns[0]
        connection.execute(
            f"insert into penstock.{table} (segment, {others}) select 0, {others} from penstock.{table}".encode()
        )
