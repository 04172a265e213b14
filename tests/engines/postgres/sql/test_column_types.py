"""Schemas of an earlier version, whose times had a time zone, are made anew by `penstock migrate`."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import penstock
from tests.engines.postgres.sql.conftest import Sql, connect
from tests.engines.postgres.sql.test_message_schema import LOCK, finish, put
from tests.engines.postgres.sql.test_ownership import migrate_again

# As they were written before, for the number of a schema.
EARLIER = """
    drop view messages.message;
    create view messages.message with (security_barrier) as
    with live as not materialized (select * from penstock.compat_message where schema_id = {messages})
    select id, created_at, message, lock_expires_at from live;
    drop view messages.message_archive;
    create view messages.message_archive with (security_barrier) as
    select id, created_at, archived_at, message, result, handled_by, details
    from penstock.compat_archive where schema_id = {messages};
    create trigger send instead of insert on messages.message
    for each row execute function penstock._message_insert({messages});
    create trigger lock instead of update on messages.message
    for each row execute function penstock._message_update({messages});
    create trigger remove instead of delete on messages.message
    for each row execute function penstock._message_delete({messages});
    create trigger settle instead of insert on messages.message_archive
    for each row execute function penstock._archive_insert({messages});
    drop function jobs.dequeue(varchar, integer);
    create function jobs.dequeue(
        client_id character varying, lease_seconds integer default -1,
        out msg_id uuid, out expires timestamptz, out msg_json json)
    language sql security definer set search_path = pg_catalog, pg_temp as $call$
        select d.msg_id, d.expires, d.msg_json from penstock._compat_dequeue({jobs}, client_id, lease_seconds) d
    $call$;
    revoke all on function jobs.dequeue from public;
    drop type public.message_status;
    drop function public.uuid_generate_v4();
"""
ROLE = "test_partner"


@pytest.fixture
def earlier(sql: Sql) -> Iterator[Sql]:
    """A role that is no member of Penstock's has rights on both schemas."""
    sql("select penstock.create_queue_schema('jobs')")
    sql("select penstock.create_message_schema('messages')")
    numbers = dict(sql("select schema_name, schema_id from penstock.compat_schema"))
    sql(EARLIER.format(**numbers))
    if not sql("select 1 from pg_roles where rolname = %s", ROLE):
        sql(f"create role {ROLE} login")
    sql(f"grant usage on schema jobs, messages to {ROLE}")
    sql(f"grant execute on function jobs.dequeue to {ROLE}")
    sql(f"grant select, update on messages.message to {ROLE} with grant option")
    sql(f"grant insert, select (id, result) on messages.message_archive to {ROLE}")
    yield sql
    sql(f"drop owned by {ROLE}")


KINDS = """
    select pg_typeof(m.created_at)::text, pg_typeof(m.lock_expires_at)::text from messages.message as m
    union all
    select pg_typeof(a.created_at)::text, pg_typeof(a.archived_at)::text from messages.message_archive as a
    union all
    select pg_typeof(d.expires)::text, pg_typeof(d.expires)::text from jobs.dequeue('c') as d
"""


def test_a_migration_changes_the_types_and_keeps_the_rights(earlier: Sql, postgres_url: str) -> None:
    first, second = put(earlier, 1), put(earlier, 2)
    earlier(LOCK, first)
    finish(earlier, first, "failed")
    assert {kind for row in earlier(KINDS) for kind in row} == {"timestamp with time zone"}
    assert migrate_again(earlier, postgres_url) == []
    assert {kind for row in earlier(KINDS) for kind in row} == {"timestamp without time zone"}
    assert earlier("select id, result::text from messages.message_archive") == [(first, "failed")]
    earlier(f"grant {ROLE} to current_user")
    with connect(postgres_url, user=ROLE) as connection:
        partner = Sql(connection)
        assert partner(LOCK, second)[0][0] == second
        assert partner("select id, result::text from messages.message_archive") == [(first, "failed")]
        partner("select msg_id from jobs.dequeue('partner')")
        partner("grant select on messages.message to public")
        for statement in ("delete from messages.message", "select message from messages.message_archive"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                partner(statement)


def test_a_schema_of_before_works_until_it_can_be_written_to(earlier: Sql, postgres_url: str) -> None:
    """Somebody else may create objects in it, so it stays as it is."""
    earlier(f"grant create on schema messages, jobs to {ROLE}")
    assert len(migrate_again(earlier, postgres_url)) == 2
    number = put(earlier, {"still": "works"})
    assert len(earlier(LOCK, number)) == 1
    assert finish(earlier, number, "success") == number
    earlier("call jobs.enqueue('1')")
    assert {kind for row in earlier(KINDS) for kind in row} == {"timestamp with time zone"}


def test_a_view_that_depends_on_a_table_stops_the_migration(earlier: Sql, postgres_url: str) -> None:
    earlier("create view public.waiting as select count(*) from messages.message where lock_expires_at is null")
    with pytest.raises(penstock.Refused, match=r"made anew: view public.waiting depends on view messages.message"):
        migrate_again(earlier, postgres_url)
    assert {kind for row in earlier(KINDS) for kind in row} == {"timestamp with time zone"}
    earlier("drop view public.waiting")
    migrate_again(earlier, postgres_url)
    assert {kind for row in earlier(KINDS) for kind in row} == {"timestamp without time zone"}
