"""What a call reads does not grow with what waits: counted in rows, not in time."""

from __future__ import annotations

from tests.sql.conftest import Sql

READ = """
    select sum(seq_tup_read + idx_tup_fetch) from pg_stat_xact_user_tables
    where schemaname = 'penstock' and relname like 'log%'
"""


def test_a_lock_reads_no_more_messages_than_it_takes(sql: Sql) -> None:
    sql("select penstock.create_message_schema('messages')")
    # A used database: another queue has been read, and the statistics are known.
    for queue in ("other", "messages"):
        sql(f"select penstock.send_many('{queue}', array_fill('{{}}'::jsonb, array[10000]))")
    sql("select count(*) from penstock.receive('other', consumer => 'c', \"limit\" => 1000)")
    sql("analyze")
    for _ in range(2):
        with sql.connection.transaction():
            [(number,)] = sql("select min(id) from messages.message")
            [(before,)] = sql(READ)
            lock = (
                "update messages.message set lock_expires_at = now() + interval '1 minute' where id = %s returning id"
            )
            assert sql(lock, number) == [(number,)]
            [(after,)] = sql(READ)
            assert after - before < 100
