"""A role that may create schemas gains no rights of Penstock's owner: schemas are known by oid, and nothing in a schema
that others can write to is executed or written with the owner's rights."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator

import psycopg
import pytest
from psycopg_pool import ConnectionPool

import penstock
from penstock.engines.postgres import migration
from tests.engines.postgres.server import binaries
from tests.engines.postgres.sql import clusters
from tests.engines.postgres.sql.conftest import Sql, connect

ROLE = "test_attacker"
PROCEDURE = "create or replace procedure {schema}.{name} language plpgsql as $$ begin raise 'hijacked'; end $$"


def attackers_session(sql: Sql, url: str) -> Sql:
    """A session of a role that may do nothing but create schemas in the database."""
    with contextlib.suppress(psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
        sql(f"create role {ROLE} login")
    [(database,)] = sql("select quote_ident(current_database())")
    sql(f"grant create on database {database} to {ROLE}")
    return Sql(connect(url, user=ROLE))


@pytest.fixture
def attacker(sql: Sql, postgres_url: str) -> Iterator[Sql]:
    session = attackers_session(sql, postgres_url)
    yield session
    session.connection.close()


def migrate_again(sql: Sql, url: str) -> list[str]:
    """As after an upgrade: functions are written anew. The warnings of the server about schemas."""
    sql("update penstock.store set functions_digest = 'of an older version'")
    warnings: list[str] = []

    def listen(connection: psycopg.Connection) -> None:
        connection.add_notice_handler(lambda notice: warnings.append(notice.message_primary or ""))

    with ConnectionPool(url, min_size=1, max_size=1, configure=listen) as pool:
        with penstock.connect(url, pool=pool) as store:
            store.migrate()
    return [warning for warning in warnings if warning.startswith("schema")]


def routines(sql: Sql, schema: str) -> list[str]:
    return [name for (name,) in sql("select proname from pg_proc where pronamespace = %s::regnamespace", schema)]


def test_a_comment_makes_no_schema_ours(sql: Sql, attacker: Sql, postgres_url: str) -> None:
    sql("select penstock.create_queue_schema('jobs')")
    [(door,)] = sql("select schema_id from penstock.compat_schema")
    attacker("create schema evil")
    attacker(f"comment on schema evil is 'Made by Penstock, number {door}'")
    attacker(PROCEDURE.format(schema="evil", name="cron_unlock(lease_duration_in integer default 0)"))
    sql("select penstock.create_queue_schema('ordinary')")
    migrate_again(sql, postgres_url)
    assert sql("select schema_name from penstock.compat_schema order by 1") == [("jobs",), ("ordinary",)]
    assert routines(sql, "evil") == ["cron_unlock"]


def test_a_schema_made_again_by_somebody_else_is_not_ours(sql: Sql, attacker: Sql, postgres_url: str) -> None:
    sql("select penstock.create_queue_schema('jobs')")
    sql("drop schema jobs cascade")
    attacker("create schema jobs")
    attacker("create table jobs.precious as select 1 as x")
    assert migrate_again(sql, postgres_url) == []
    assert routines(sql, "jobs") == []
    with pytest.raises(psycopg.Error, match="no queue schema 'jobs'"):
        sql("select penstock.drop_queue_schema('jobs')")
    assert attacker("select * from jobs.precious") == [(1,)]


def test_a_schema_given_away_is_neither_written_to_nor_dropped(
    sql: Sql, attacker: Sql, store: penstock.Store, postgres_url: str
) -> None:
    sql("select penstock.create_queue_schema('jobs')")
    sql(f"alter schema jobs owner to {ROLE}")
    attacker("drop procedure jobs.reset_queue()")
    attacker(PROCEDURE.format(schema="jobs", name="reset_queue()"))
    [warning] = migrate_again(sql, postgres_url)
    assert warning == f"schema jobs is not written to: it belongs to role {ROLE}"
    [(definition,)] = sql("select prosrc from pg_proc where oid = 'jobs.reset_queue'::regproc")
    assert "hijacked" in definition
    assert [check.finding for check in store.doctor() if check.name == "schemas"] == [
        f"schema jobs was made by Penstock, but is not its own: it belongs to role {ROLE}"
    ]
    sql("select penstock.drop_queue_schema('jobs')")
    assert sql("select count(*) from pg_namespace where nspname = 'jobs'") == [(1,)]
    assert sql("select count(*) from penstock.compat_schema") == [(0,)]
    assert [check.finding for check in store.doctor() if check.name == "schemas"] == [
        "schema jobs was made by Penstock, but is not its own: no row of penstock.compat_schema is about it"
    ]


@pytest.mark.parametrize("grantee", [ROLE, "public"])
def test_a_schema_in_which_others_may_create_is_not_written_to(
    sql: Sql, attacker: Sql, postgres_url: str, grantee: str
) -> None:
    sql("select penstock.create_queue_schema('jobs')")
    sql(f"grant usage, create on schema jobs to {grantee}")
    [warning] = migrate_again(sql, postgres_url)
    assert warning == f"schema jobs is not written to: role {grantee} may create objects in it"
    sql("drop procedure jobs.reset_queue()")
    attacker(PROCEDURE.format(schema="jobs", name="reset_queue()"))
    sql(f"revoke create on schema jobs from {grantee}")
    # A superuser could replace the body of the function, but it would stay the attacker's.
    [warning] = migrate_again(sql, postgres_url)
    assert warning == f"schema jobs is not written to: jobs.reset_queue() in it belongs to role {ROLE}"
    sql("drop procedure jobs.reset_queue()")
    assert migrate_again(sql, postgres_url) == []
    sql("call jobs.reset_queue()")


def test_an_upgrade_after_which_calls_of_such_a_schema_would_fail_is_refused(
    sql: Sql, attacker: Sql, store: penstock.Store, postgres_url: str
) -> None:
    """Objects of an attacker stop nothing."""
    sql("select penstock.create_queue_schema('jobs')")
    sql(f"grant usage, create on schema jobs to {ROLE}")
    calling = "create or replace procedure jobs.{}() language plpgsql as $$ begin perform penstock.{}(1); end $$"
    attacker(calling.format("own_call", "_never_was"))
    [warning] = migrate_again(sql, postgres_url)
    assert warning.startswith("schema jobs is not written to: role")
    sql(calling.format("reset_queue", "_door_reset"))
    with pytest.raises(penstock.Refused, match=r"schema jobs is not written to \(role .* no function _door_reset"):
        migrate_again(sql, postgres_url)
    assert sql("select functions_digest from penstock.store") == [("of an older version",)]
    sql(f"revoke create on schema jobs from {ROLE}")
    sql("drop procedure jobs.own_call()")
    store.migrate()
    sql("call jobs.reset_queue()")


def test_a_schema_with_a_type_of_somebody_else_is_not_written_to(sql: Sql, attacker: Sql, postgres_url: str) -> None:
    sql("select penstock.create_message_schema('messages')")
    sql(f"grant usage, create on schema messages to {ROLE}")
    attacker("create domain messages.message_status as text")
    sql(f"revoke create on schema messages from {ROLE}")
    [warning] = migrate_again(sql, postgres_url)
    assert warning == (f"schema messages is not written to: type messages.message_status in it belongs to role {ROLE}")


def test_a_type_in_public_that_somebody_else_owns_is_not_used(sql: Sql, attacker: Sql) -> None:
    """Its owner could drop it, and the archive with it."""
    sql("grant create on schema public to public")
    attacker("create type public.message_status as enum ('success', 'failed', 'rejected', 'lock_expired')")
    sql("select penstock.create_message_schema('messages')")
    attacker("drop type public.message_status cascade")
    assert sql("select result::text from messages.message_archive") == []
    assert sql("select penstock.drop_message_schema('messages')")


def test_functions_in_public_are_called_by_nobody_as_owner(sql: Sql, attacker: Sql) -> None:
    sql("grant create on schema public to public")
    attacker("""create function public.uuid_generate_v4() returns uuid language plpgsql
                as $$ begin raise 'hijacked as %', current_user; end $$""")
    sql("select penstock.create_queue_schema('jobs')")
    sql("call jobs.enqueue('1')")
    [(message_id,)] = sql("select msg_id from jobs.dequeue('c')")
    sql("call jobs.message_rej(%s, 'c')", message_id)
    sql("call jobs.recover_dead_letter(%s)", message_id)
    assert len(sql("select jobs.uuid_generate_v4()")) == 1
    sql("select penstock.drop_queue_schema('jobs')")
    assert sql("select count(*) from pg_proc where proname = 'uuid_generate_v4'") == [(1,)]


def test_a_schema_called_cron_is_not_pg_cron(sql: Sql, attacker: Sql) -> None:
    attacker("create schema cron")
    attacker("""create function cron.job_name() returns text language plpgsql
                as $$ begin raise 'hijacked as %', current_user; end $$""")
    attacker("create view cron.job as select cron.job_name() as jobname, 1::bigint as jobid")
    attacker("grant usage on schema cron to public")
    attacker("grant select on cron.job to public")
    sql("select penstock.create_queue_schema('jobs')")
    sql("update jobs.queue_configuration set setting_value = '1 2 * * 3' where setting_name = 'cron_vacuum'")
    sql("select penstock.drop_queue_schema('jobs')")
    with pytest.raises(psycopg.Error, match="pg_cron is not installed"):
        sql("select penstock.install_cron()")


@pytest.fixture
def bare(bare_postgres_url: str) -> Iterator[Sql]:
    with connect(bare_postgres_url) as connection:
        yield Sql(connection)


def test_a_schema_that_somebody_made_beforehand_is_not_migrated(bare: Sql, bare_postgres_url: str) -> None:
    attacker = attackers_session(bare, bare_postgres_url)
    attacker("create schema penstock")
    with penstock.connect(bare_postgres_url) as store:
        with pytest.raises(penstock.StoreError, match=f"schema penstock belongs to role {ROLE}"):
            store.migrate()
        with pytest.raises(psycopg.Error, match="schema penstock belongs to another role"):
            bare(migration.script())
        bare("rollback")
        bare("alter schema penstock owner to current_user")
        bare(f"grant usage, create on schema penstock to {ROLE}")
        with pytest.raises(penstock.StoreError, match=f"role {ROLE} may create objects in schema penstock"):
            store.migrate()
        assert bare("select count(*) from pg_class where relnamespace = 'penstock'::regnamespace") == [(0,)]
        bare(f"revoke create on schema penstock from {ROLE}")
        store.migrate()
    attacker.connection.close()


def test_a_migration_looks_for_nothing_in_the_search_path(bare: Sql, bare_postgres_url: str) -> None:
    """A function whose arguments fit better would be taken before the one of PostgreSQL."""
    attacker = attackers_session(bare, bare_postgres_url)
    bare("grant create on schema public to public")
    for arguments in ("text, text, integer", "text, text", "text, name", "text, integer"):
        attacker(f"""create function public.format({arguments}) returns text language plpgsql
                     as $$ begin raise 'hijacked as %', current_user; end $$""")
    attacker("""create function public.hashtextextended(text, integer) returns bigint language plpgsql
                as $$ begin raise 'hijacked as %', current_user; end $$""")
    with penstock.connect(bare_postgres_url) as store:
        store.migrate()
        bare("select penstock.create_queue_schema('jobs')")
        assert migrate_again(bare, bare_postgres_url) == []
    bare("select penstock.grant_roles()")
    attacker.connection.close()


def test_an_older_store_keeps_its_schemas_and_takes_nobody_elses(sql: Sql, attacker: Sql, postgres_url: str) -> None:
    sql("select penstock.create_queue_schema('jobs')")
    sql("select penstock.create_message_schema('messages')")
    sql("alter schema jobs rename to tasks")
    sql("select penstock.create_queue_schema('taken')")
    sql(f"alter schema taken owner to {ROLE}")
    # As it was before schemas were known by oid.
    sql("update penstock.compat_schema set schema_oid = null, home = null")
    assert migrate_again(sql, postgres_url) == [f"schema taken is not written to: it belongs to role {ROLE}"]
    assert sql("""select d.schema_name, n.nspname::text from penstock.compat_schema as d left join pg_namespace as n
                  on n.oid = d.schema_oid order by 1""") == [
        ("messages", "messages"),
        ("taken", None),
        ("tasks", "tasks"),
    ]
    sql("call tasks.enqueue('1')")
    sql("select penstock.drop_queue_schema('tasks')")


def test_a_store_that_was_taken_in_goes_back_to_its_own_schema(
    sql: Sql, attacker: Sql, store: penstock.Store, postgres_url: str
) -> None:
    """The behaviour of an older version, which trusted a comment."""
    sql("select penstock.create_queue_schema('jobs')")
    attacker("create schema evil")
    sql("select penstock._write_queue_schema('evil', schema_id) from penstock.compat_schema")
    sql("update penstock.compat_schema set schema_name = 'evil', schema_oid = null, home = null")
    migrate_again(sql, postgres_url)
    assert sql("select schema_name from penstock.compat_schema") == [("jobs",)]
    assert [check.finding for check in store.doctor() if check.name == "schemas"] == [
        "schema evil was made by Penstock, but is not its own: no row of penstock.compat_schema is about it"
    ]


def test_a_copy_in_another_database_finds_its_schemas_again(sql: Sql, postgres_url: str) -> None:
    sql("select penstock.create_queue_schema('jobs')")
    sql("call jobs.enqueue('31')")
    dump = subprocess.run([binaries() / "pg_dump", "-Fc", postgres_url], check=True, capture_output=True)
    [(database,)] = sql("select current_database() || '_copy'")
    sql(f'create database "{database}"')
    copy_url = postgres_url.replace(database.removesuffix("_copy"), database)
    restore = [str(binaries() / "pg_restore"), "-d", copy_url]
    subprocess.run(restore, input=dump.stdout, check=True, capture_output=True)
    with connect(copy_url) as connection, penstock.connect(copy_url) as store:
        copy = Sql(connection)
        # The oid may belong to another object here.
        copy("create schema mine")
        copy("update penstock.compat_schema set schema_oid = 'mine'::regnamespace")
        store.migrate()
        assert copy("select schema_oid = 'jobs'::regnamespace from penstock.compat_schema") == [(True,)]
        assert copy("select msg_json from jobs.dequeue('c')") == [(31,)]
        copy("select penstock.drop_queue_schema('jobs')")
        assert copy("select nspname::text from pg_namespace where nspname in ('jobs', 'mine')") == [("mine",)]
        assert store.migrate() == []


needs_cron = pytest.mark.skipif(bool(clusters.missing), reason=f"not installed: {', '.join(clusters.missing)}")


@needs_cron
@pytest.mark.xdist_group("pg_15")
def test_jobs_of_pg_cron_call_nothing_outside_the_schema_of_penstock() -> None:
    cluster = clusters.Cluster("pg_cron")
    cluster.start()
    try:
        with penstock.connect(cluster.url()) as store, connect(cluster.url()) as connection:
            store.migrate()
            sql = Sql(connection)
            sql("create extension pg_cron")
            sql("select penstock.create_queue_schema('jobs')")
            sql("select penstock.install_cron()")
            # The command of a version before.
            sql("update cron.job set command = 'call jobs.cron_unlock(0)' where jobname like '%retention_queue'")
            assert migrate_again(sql, cluster.url()) == []
            commands = [command for (command,) in sql("select command from cron.job")]
            assert len(commands) == 6
            for command in commands:
                assert "jobs" not in command
                assert command.startswith(("select penstock.", "call penstock.", "vacuum penstock."))
                sql(command)
    finally:
        cluster.stop()
        cluster.remove()
