"""A store whose tables were called reader, claim and step keeps its data when they get the words of the glossary."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

import penstock
from penstock.engines.postgres import migration
from tests.engines.postgres.server import fresh_database

STEPS = 23
NOW = 1_800_000_000_000_000
TOKEN = 7

# What the functions of that version had written: two messages leased, one unread, a retry, a dead letter, one held, and
# a batch with one open member; and names that the migration has to deal with.
ROWS = f"""
    insert into penstock.store (schema_version, salt, epoch, system_identifier, injected_clock)
    select {STEPS}, 1, 1, system_identifier, true from pg_control_system();
    insert into penstock.queue (name, created_at, primary_group_id) values ('orders', 0, 1);
    insert into penstock.reader (queue_id, name, used_at) values (1, 'default', {NOW});
    insert into penstock.lane (queue_id, priority, shard) values (1, 0, 0);
    insert into penstock.log (seq, tx, created_at, lane_id, payload, batch_id)
    select nextval('penstock.position'), pg_current_xact_id(), {NOW}, 1, convert_to('message ' || n, 'UTF8'),
        case when n = 2 then 1 end
    from generate_series(1, 5) as n;
    insert into penstock.batch (queue_id, name, state, created_at) values (1, 'nightly', 'running', {NOW});
    insert into penstock.joining (batch_id, n) values (1, 1);
    insert into penstock.member (seq, batch_id) values (2, 1);
    insert into penstock.held (queue_id, priority, shard, available_at, waiting, id, created_at, payload, address)
    values (1, 0, 0, {NOW} + 3600000000, false, gen_random_uuid(), {NOW}, 'later', 'home');
    insert into penstock.identity (queue_id, id, held_id) select 1, id, held_id from penstock.held;
    insert into penstock.address (queue_id, address, id) select 1, 'home', id from penstock.held;
    insert into penstock.pledge (name, queue_id, key, part, begun_at) values ('penstock x', 1, 'k', 'p', {NOW});
    create function penstock._mourn(_seq bigint) returns bigint language sql as 'select _seq';
    create function penstock.take(_queue text) returns text language sql as 'select _queue'
"""
READ = f"""
    insert into penstock.claim (
        entry, group_id, lane_id, number, tx, prev, snap, at_tx, at_seq, used_up, above, passed, at, token, checked_at,
        first, last, n, consumer
    )
    select nextval('penstock.entry'), 1, 1, 1, pg_current_xact_id(), '1:1:', pg_current_snapshot(), tx, 4, false, 0, 4,
        {NOW}, {TOKEN}, {NOW}, 1, 4, 4, 'worker'
    from penstock.log where seq = 4;
    insert into penstock.lease (
        group_id, token, lane_id, ends_at, leased_at, first, last, n, checksum, consumer, positions
    ) values (1, {TOKEN}, 1, {NOW} + 30000000, {NOW}, 1, 2, 2, 3, 'worker', '{{[1,3)}}');
    insert into penstock.tracked (
        group_id, seq, lane_id, priority, state, attempt, until_at, token, reason, created_at, payload
    ) values (1, 3, 1, 0, 'ready', 1, {NOW}, {TOKEN}, 'busy', {NOW}, 'message 3');
    insert into penstock.dead_letter (
        group_id, seq, queue_id, lane_id, priority, outcome, reason, attempts, died_at, created_at, payload
    ) values (1, 4, 1, 1, 0, 'rejected', 'no', 1, {NOW}, {NOW}, 'message 4');
    insert into penstock.dead_change (group_id, n) values (1, 1);
    insert into penstock.step (
        entry, queue_id, group_id, tx, at, token, first, last, n, attempt, event, state, by, reason
    )
    select nextval('penstock.entry'), 1, 1, pg_current_xact_id(), {NOW}, {TOKEN}, s.seq, s.seq, 1, 1, s.event, s.state,
        'worker', s.reason
    from (values (3, 'nak', 'ready', 'busy'), (4, 'reject', 'rejected', 'no')) as s (seq, event, state, reason)
"""
COUNTED = {
    "log": "log",
    "reader": '"group"',
    "claim": "cursor",
    "step": "audit",
    "member": "batch_member",
    "joining": "batch_join",
    "pledge": "prepared_write",
    "lease": "lease",
    "tracked": "tracked",
    "dead_letter": "dead_letter",
    "held": "held",
    "identity": "identity",
    "address": "address",
}


@contextmanager
def store_of_before() -> Iterator[tuple[str, psycopg.Connection]]:
    url = fresh_database(migrated=False)
    with psycopg.connect(url, autocommit=True) as connection:
        for _, script in migration.steps()[:STEPS]:
            connection.execute(script.encode())
        for script in (ROWS, READ):
            connection.execute(script.encode())
        connection.execute(f"alter database {connection.info.dbname} set penstock.now = '{NOW + 1}'".encode())
        yield url, connection


def contents(connection: psycopg.Connection, table: str) -> list[tuple[str]]:
    """All rows as text: the order and the values of the columns, without their names."""
    return connection.execute(f"select t::text from penstock.{table} as t order by 1".encode()).fetchall()


def test_every_row_is_kept_under_the_new_names() -> None:
    with store_of_before() as (url, connection), penstock.connect(url) as store:
        before = {old: contents(connection, old) for old in COUNTED}
        assert all(before.values())
        assert "024_glossary" in store.migrate()
        assert {old: contents(connection, new) for old, new in COUNTED.items()} == before
        assert store.migrate() == []


def test_work_goes_on_where_it_was() -> None:
    with store_of_before() as (url, connection), penstock.connect(url) as store:
        store.migrate()
        queue = store.queue("orders")
        stats = queue.stats("default")
        assert (stats.in_progress, stats.redo, stats.available, stats.held, stats.dead) == (2, 1, 1, 1, 1)
        ids = connection.execute("select id from penstock.message where position <= 2 order by position").fetchall()
        assert [
            connection.execute("select penstock.ack('orders', %s, %s)", [message_id, TOKEN]).fetchone()
            for (message_id,) in ids
        ] == 2 * [("succeeded",)]
        assert queue.batch("nightly").state == "finished"
        received = queue.receive(limit=10)
        assert [(one.payload, one.attempt) for one in received] == [(b"message 3", 2), (b"message 5", 1)]
        queue.ack_many(received)
        assert [(one.payload, one.reason) for one in queue.dead_letters()] == [(b"message 4", "no")]
        assert [entry.event for entry in queue.audit(received[0].id)] == ["send", "receive", "nak", "receive", "ack"]
        assert queue.redrive() == 1
        assert [one.payload for one in queue.receive(limit=10)] == [b"message 4"]


def test_functions_of_before_are_gone_unless_somebody_depends_on_them() -> None:
    with store_of_before() as (url, connection), penstock.connect(url) as store:
        connection.execute("create view public.mine as select penstock.take('orders') as queue")
        store.migrate()
        names = connection.execute(
            "select proname from pg_proc "
            "where pronamespace = 'penstock'::regnamespace and proname in ('_mourn', 'take')"
        ).fetchall()
        assert names == [("take",)]
        assert connection.execute("select queue from public.mine").fetchone() == ("orders",)
