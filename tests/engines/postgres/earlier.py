"""Stores as earlier versions left them: the tables of the first steps, with rows as their functions wrote them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from penstock.engines.postgres import migration
from tests.engines.postgres.server import fresh_database


@contextmanager
def earlier_store(steps: int) -> Iterator[tuple[str, psycopg.Connection]]:
    """A database in which the first steps were taken and the log has five segments, and a connection to it."""
    url = fresh_database(migrated=False)
    with psycopg.connect(url, autocommit=True) as connection:
        for _, script in migration.steps()[:steps]:
            connection.execute(script.encode())
        connection.execute(
            "insert into penstock.store (schema_version, salt, epoch, system_identifier) "
            "select %s, 1, 1, system_identifier from pg_control_system()",
            [steps],
        )
        connection.execute(
            "insert into penstock.segment (segment, opened_at, sealed) "
            "select n, 0, case when n <> 1 then '0'::xid8 end from generate_series(0, 4) as n"
        )
        connection.execute("insert into penstock.queue (name, created_at, primary_group_id) values ('orders', 0, 1)")
        connection.execute("insert into penstock.reader (queue_id, name, used_at) values (1, 'default', %s)", [NOW])
        connection.execute("insert into penstock.lane (queue_id, priority, shard) values (1, 0, 0)")
        yield url, connection


NOW = 1_800_000_000_000_000


def send(connection: psycopg.Connection, segment: int, *payloads: str) -> None:
    """In one transaction, as `append` did."""
    connection.execute(
        "insert into penstock.log (seq, tx, created_at, lane_id, segment, payload) "
        "select nextval('penstock.position'), pg_current_xact_id(), %s, 1, %s, convert_to(one, 'UTF8') "
        "from unnest(%s::text[]) as one",
        [NOW, segment, list(payloads)],
    )


def receive(connection: psycopg.Connection, segment: int, number: int, first: int, last: int) -> None:
    """As `receive` did when it had handed out all that there was, and everything was acked."""
    connection.execute(
        """
        with taken as (
            insert into penstock.claim (
                entry, group_id, lane_id, number, tx, prev, snap, at_tx, at_seq, used_up, above, passed, at, token,
                checked_at, first, last, n, segment, consumer
            )
            select nextval('penstock.entry'), 1, 1, %(number)s, pg_current_xact_id(), pg_current_snapshot(),
                pg_current_snapshot(), '0', 0, true, 0, %(last)s, %(now)s, %(number)s, %(now)s, %(first)s, %(last)s,
                %(last)s - %(first)s + 1, %(segment)s, 'worker'
            returning first, last, n, tx, at, token, segment
        )
        insert into penstock.step (
            entry, queue_id, group_id, tx, at, token, first, last, n, attempt, segment, event, state, by
        )
        select nextval('penstock.entry'), 1, 1, tx, at, token, first, last, n, 1, segment, 'ack', 'succeeded', 'worker'
        from taken
        """,
        {"segment": segment, "number": number, "first": first, "last": last, "now": NOW},
    )
