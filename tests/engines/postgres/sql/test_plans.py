"""The rows that a call reads do not grow with the backlog."""

from __future__ import annotations

from tests.engines.postgres.sql.conftest import Sql

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


def test_deleting_many_messages_needs_few_locks(sql: Sql) -> None:
    """The table of locks has room for some thousands; each message that is taken alone needs one."""
    sql("select penstock.create_message_schema('messages')")
    sql("select penstock.send_many('messages', array_fill('1'::jsonb, array[300]))")
    with sql.connection.transaction():
        sql("delete from messages.message")
        sql("set constraints all immediate")
        [(locks,)] = sql("select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory'")
        assert locks < 50
    assert sql("select result::text, count(*) from messages.message_archive group by 1") == [("rejected", 300)]


def test_the_statements_of_every_receive_are_expanded_into_their_caller(sql: Sql) -> None:
    """A function that became volatile or got settings of its own would be planned and run apart."""
    for call in (
        "penstock._find_receiver('orders', null, 'c', 1, null, true)",
        "penstock._find_due_work(1, 1, 1, 1, 'c', 0)",
        "penstock._window_messages(1, null::penstock.cursor, 0)",
    ):
        plan = [line for (line,) in sql(f"explain (costs off) select * from {call}")]
        assert not [line for line in plan if "Function Scan on _" in line], f"{call} is not expanded: {plan}"
