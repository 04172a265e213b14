"""pg_cron on the oldest PostgreSQL that is supported, and a clear message where it is missing."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import penstock
from tests.engines.postgres.sql import clusters
from tests.engines.postgres.sql.conftest import Sql, connect

needs_cron = pytest.mark.skipif(bool(clusters.missing), reason=f"not installed: {', '.join(clusters.missing)}")


@pytest.fixture(scope="module")
def cluster() -> Iterator[clusters.Cluster]:
    cluster = clusters.Cluster("pg_cron")
    cluster.start()
    store = penstock.connect(cluster.url())
    store.migrate()
    store.close()
    yield cluster
    cluster.stop()
    cluster.remove()


@pytest.fixture
def old(cluster: clusters.Cluster) -> Iterator[Sql]:
    with connect(cluster.url()) as connection:
        yield Sql(connection)


def test_without_the_extension_the_error_says_how_to_get_it(sql: Sql) -> None:
    for call in ("install_cron", "uninstall_cron"):
        with pytest.raises(psycopg.Error, match="pg_cron is not installed on this server") as refused:
            sql(f"select penstock.{call}()")
        assert refused.value.diag.sqlstate == "PN200"
        hint = refused.value.diag.message_hint or ""
        assert "shared_preload_libraries" in hint
        assert "create extension pg_cron" in hint
        assert "-cron" in hint


@needs_cron
@pytest.mark.xdist_group("pg_15")
def test_a_round_trip_on_the_oldest_version(cluster: clusters.Cluster, old: Sql) -> None:
    assert old("show server_version_num")[0][0].startswith("15")
    store = penstock.connect(cluster.url())
    queue = store.queue("round")
    queue.send({"n": 16})
    [delivery] = queue.receive(consumer="c")
    delivery.ack()
    assert queue.stats(group="default").done == 1
    store.close()
    old("select penstock.create_queue_schema('jobs')")
    old("call jobs.enqueue('17')")
    [(message_id, _, payload)] = old("select * from jobs.dequeue('c')")
    old("call jobs.message_ack(%s, 'c')", message_id)
    assert payload == 17
    assert old("select count(*) from jobs.message_history") == [(1,)]
    old("select penstock.create_message_schema('messages')")
    [(number,)] = old("insert into messages.message (message) values ('18') returning id")
    assert old(
        "update messages.message set lock_expires_at = now() + interval '1 minute' where id = %s returning id", number
    ) == [(number,)]
    old("delete from messages.message where id = %s", number)
    assert old("select id, result::text from messages.message_archive") == [(number, "success")]
    [(dead,)] = old("insert into messages.message (message) values ('27') returning id")
    old("delete from messages.message where id = %s", dead)
    assert f"WARNING:  messages.message_archive.id={dead} has result=rejected" in cluster.log.read_text(
        encoding="utf-8"
    )
    old("select penstock.drop_queue_schema('jobs', true)")
    old("select penstock.drop_message_schema('messages', true)")


@needs_cron
@pytest.mark.xdist_group("pg_15")
def test_the_jobs_follow_the_settings_and_go_again(old: Sql) -> None:
    with pytest.raises(psycopg.Error, match="not in this database") as refused:
        old("select penstock.install_cron()")
    assert "create extension pg_cron" in (refused.value.diag.message_hint or "")
    old("create extension pg_cron")
    old("select cron.schedule('somebody else''s', '0 0 * * *', 'select 1')")
    old("select penstock.create_queue_schema('one; two')")
    old("select penstock.install_cron()")
    old("select penstock.install_cron()")
    jobs = "select jobname, schedule, command from cron.job where jobname like 'penstock:%' order by jobid"
    [number] = old("select schema_id from penstock.compat_schema")[0]
    assert old(jobs)[0] == ("penstock:postgres:sweep", "* * * * *", "call penstock.sweep_queues()")
    assert {(name.removeprefix(f"penstock:postgres:{number}:"), schedule) for name, schedule, _ in old(jobs)[1:]} == {
        ("cron_schedule_retention_queue", "*/7 * * * * *"),
        ("cron_schedule_retention_dead_letter", "0 3 * * *"),
        ("cron_schedule_retention_history", "8 1 * * 6"),
        ("cron_schedule_retention_audit_log", "0 3 * * *"),
        ("cron_vacuum", "45 4 * * *"),
    }
    for _, _, command in old(jobs):
        old(command)
    old("update cron.job set command = 'vacuum penstock.door_note' where jobname like '%cron_vacuum'")
    old("select penstock._write_schemas()")
    assert [command for name, _, command in old(jobs) if name.endswith("cron_vacuum") and "compat_note" in command]
    assert len(old(jobs)) == 6
    old("""update "one; two".queue_configuration set setting_value = '1 2 * * 3' where setting_name = 'cron_vacuum' """)
    assert ("1 2 * * 3",) in old("select schedule from cron.job")
    old("select penstock.create_queue_schema('later')")
    assert len(old(jobs)) == 11
    old("select penstock.drop_queue_schema('later')")
    assert len(old(jobs)) == 6
    assert old("select penstock.uninstall_cron()") == [("6 jobs removed",)]
    assert old("select jobname from cron.job") == [("somebody else's",)]
    old("select penstock.drop_queue_schema('one; two')")


@needs_cron
@pytest.mark.xdist_group("pg_15")
def test_pg_cron_runs_the_sweep(cluster: clusters.Cluster, old: Sql) -> None:
    old("create extension if not exists pg_cron")
    old("select penstock.install_cron()")
    old("select penstock.declare('late', '{\"ttl_seconds\": 0.001}')")
    old("select penstock.send('late', '19')")
    # pg_cron's clock has minutes; at the start of the server it runs such jobs at once.
    old("update cron.job set schedule = '@reboot' where jobname = 'penstock:postgres:sweep'")
    old.connection.close()
    cluster.stop()
    cluster.start()
    with connect(cluster.url()) as connection:
        again = Sql(connection)
        again("""
            do $$ begin
                for turn in 1..3000 loop
                    exit when exists (select from cron.job_run_details where status in ('succeeded', 'failed'));
                    perform pg_sleep(0.02);
                end loop;
            end $$
        """)
        assert again("select command, status from cron.job_run_details") == [
            ("call penstock.sweep_queues()", "succeeded")
        ]
        assert again("select outcome from penstock.dead_letter") == [("expired",)]
        again("select penstock.uninstall_cron()")


@needs_cron
@pytest.mark.xdist_group("pg_15")
def test_in_another_database_than_pg_crons_the_error_says_what_to_call_there(
    cluster: clusters.Cluster, old: Sql
) -> None:
    old("create database elsewhere")
    store = penstock.connect(cluster.url("elsewhere"))
    store.migrate()
    store.close()
    with connect(cluster.url("elsewhere")) as connection:
        elsewhere = Sql(connection)
        with pytest.raises(psycopg.Error, match="pg_cron works in database 'postgres', not in 'elsewhere'") as refused:
            elsewhere("select penstock.install_cron()")
    hint = refused.value.diag.message_hint or ""
    old("create extension if not exists pg_cron")
    old(hint.removeprefix("Call there: "))
    assert old("select database, command from cron.job where database = 'elsewhere'") == [
        ("elsewhere", "call penstock.sweep_queues()")
    ]
