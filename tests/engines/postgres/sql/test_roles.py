"""Least privilege, tried by connecting as each role: what it may do works, everything else is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import psycopg
import pytest

import penstock
from tests.engines.postgres.sql.conftest import Sql, connect

ROLES = ("producer", "consumer", "observer", "admin")
DENIED = psycopg.errors.InsufficientPrivilege

As = Callable[[str], Sql]


@pytest.fixture
def as_(sql: Sql, postgres_url: str) -> Iterator[As]:
    """Sessions of login roles that are members of one role of Penstock each; `nobody` is a member of none."""
    sessions: dict[str, Sql] = {}
    for role in (*ROLES, "nobody"):
        member = f"test_{role}"
        if not sql("select 1 from pg_roles where rolname = %s", member):
            # A test that runs beside this one may make it at the same time.
            with contextlib.suppress(psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
                sql(f"create role {member} login")
        if role != "nobody" and not sql("select pg_has_role(%s, %s, 'usage')", member, f"penstock_{role}")[0][0]:
            with contextlib.suppress(psycopg.errors.UniqueViolation):
                sql(f"grant penstock_{role} to {member}")

    def session(role: str) -> Sql:
        if role not in sessions:
            sessions[role] = Sql(connect(postgres_url, user=f"test_{role}"))
        return sessions[role]

    sql("select penstock.create_queue_schema('jobs')")
    sql("select penstock.create_message_schema('messages')")
    yield session
    for one in sessions.values():
        one.connection.close()


# Every statement, and the roles that may run it besides the administrator. {taken} is a message of jobs that `c` holds.
MATRIX: dict[str, tuple[str, ...]] = {
    "select penstock.send('q', '{}')": ("producer",),
    "select penstock.send_many('q', array['{}'::jsonb])": ("producer",),
    "select * from penstock.receive('q', consumer => 'c')": ("consumer",),
    "select * from penstock.stats('q')": ("observer",),
    "select * from penstock.peek('q')": ("observer",),
    "select * from penstock.message": ("observer",),
    "select * from penstock.message_archive": ("observer",),
    "select * from penstock.dead_letters": ("observer",),
    "select * from penstock.message_audit": ("observer",),
    "select penstock.declare('q', '{\"max_retries\": 1}')": (),
    "select penstock.flush('q')": (),
    "select penstock.redrive('q')": (),
    "select penstock.pause('q')": (),
    "select penstock.resume('q')": (),
    "select * from penstock.sweep()": (),
    "select penstock.create_queue_schema('other')": (),
    "select penstock.drop_queue_schema('jobs')": (),
    "call jobs.enqueue('{}')": ("producer",),
    "select * from jobs.dequeue('d')": ("consumer",),
    "call jobs.message_ack('{taken}', 'c')": ("consumer",),
    "call jobs.message_nak('{taken}', 'c')": ("consumer",),
    "call jobs.message_rej('{taken}', 'c')": ("consumer",),
    "call jobs.message_reschedule('{taken}')": ("consumer",),
    "call jobs.add_audit('{taken}', 99, 'c', 'x')": ("consumer",),
    "call jobs.reset_queue()": (),
    "call jobs.cron_unlock(0)": (),
    "select * from jobs.message_queue": ("observer",),
    "select * from jobs.message_history": ("observer",),
    "select * from jobs.dead_letter": ("observer",),
    "select * from jobs.message_audit": ("observer",),
    "select * from jobs.message_state": ("observer",),
    "select * from jobs.queue_configuration": ("observer",),
    "update jobs.queue_configuration set setting_value = '9' where setting_name = 'max_retries'": (),
    "insert into messages.message (message) values ('1')": ("producer",),
    "insert into messages.message (message) values ('1') returning id": ("producer",),
    "insert into messages.message (message) values ('1') returning message": (),
    "select id from messages.message": ("producer", "consumer", "observer"),
    "select message from messages.message": ("consumer", "observer"),
    "select jobs.uuid_generate_v4()": ("producer", "consumer", "observer"),
    "insert into messages.message_archive (message) select '1' where false": ("consumer",),
    "select * from messages.message": ("consumer", "observer"),
    "update messages.message set lock_expires_at = now() + interval '1 minute' returning id": ("consumer",),
    "delete from messages.message": ("consumer",),
    "select * from messages.message_archive": ("consumer", "observer"),
    "delete from messages.message_archive": (),
}


@pytest.mark.parametrize("role", [*ROLES, "nobody"])
def test_every_role_may_do_its_part_and_nothing_else(sql: Sql, as_: As, role: str) -> None:
    session = as_(role)
    wrong = []
    for statement, allowed in MATRIX.items():
        sql("call jobs.enqueue('{}')")
        [(taken,)] = sql("select msg_id from jobs.dequeue('c')")
        may = role == "admin" or role in allowed
        try:
            with session.connection.transaction(force_rollback=True):
                session(statement.replace("{taken}", str(taken)))
        except DENIED:
            if may:
                wrong.append(f"{role} may not: {statement}")
        else:
            if not may:
                wrong.append(f"{role} may: {statement}")
        sql("call jobs.reset_queue()")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("role", [*ROLES, "nobody"])
def test_nobody_writes_to_a_table_or_makes_things_in_the_schema(sql: Sql, as_: As, role: str) -> None:
    session = as_(role)
    tables = [name for (name,) in sql("select tablename from pg_tables where schemaname = 'penstock'")]
    assert len(tables) > 10
    for table in tables:
        refused = [
            f"delete from penstock.{table}",
            f"truncate penstock.{table}",
            f"insert into penstock.{table} default values",
        ]
        if not (role in ("observer", "admin") or (role != "nobody" and table in ("store", "queue"))):
            refused.append(f"select * from penstock.{table}")
        for statement in refused:
            with pytest.raises(DENIED):
                session(statement)
    for schema in ("penstock", "jobs", "messages"):
        with pytest.raises(DENIED):
            session(f"create function {schema}.now_us() returns bigint language sql as 'select 0::bigint'")


@pytest.mark.parametrize("role", [*ROLES, "nobody"])
def test_no_internal_function_can_be_called(sql: Sql, as_: As, role: str) -> None:
    [(callable_,)] = sql(
        """select array_agg(p.proname::text) from pg_proc p
           where p.pronamespace = 'penstock'::regnamespace and p.proname like '\\_%%'
             and has_function_privilege(%s, p.oid, 'execute')""",
        f"test_{role}",
    )
    as_(role)
    assert callable_ is None


def test_every_function_that_runs_as_the_owner_has_a_fixed_path_and_is_not_for_the_public(sql: Sql, as_: As) -> None:
    loose = sql("""
        select p.oid::regprocedure::text, p.proconfig::text, p.proacl::text
        from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname in ('penstock', 'jobs', 'messages') and p.prosecdef
          and (not coalesce(p.proconfig, '{}') @> array['search_path=pg_catalog, pg_temp']
               or p.proacl is null or p.proacl::text ~ '[{,]=X')
    """)
    assert loose == []


def test_every_verb_is_given_to_somebody(sql: Sql) -> None:
    clock = "select function from penstock.role_right where function not in ('now_us', 'injected_now')"
    granted = {name for (name,) in sql(clock)}
    verbs = {
        name
        for (name,) in sql("""select p.proname from pg_proc p where p.pronamespace = 'penstock'::regnamespace
                              and (p.prosecdef or p.prokind = 'p') and p.proname not like '\\_%'""")
    }
    assert verbs == granted


def test_one_application_can_be_given_one_queue_only(sql: Sql, as_: As) -> None:
    sql("select penstock.create_queue_schema('private')")
    sql("grant usage on schema jobs to test_nobody")
    sql("grant execute on procedure jobs.enqueue to test_nobody")
    application = as_("nobody")
    application("call jobs.enqueue('15')")
    assert sql("select message_json from jobs.message_queue") == [(15,)]
    for statement in (
        "call private.enqueue('1')",
        "select penstock.send('private', '1')",
        "select * from jobs.dequeue('c')",
        "select * from jobs.message_queue",
    ):
        with pytest.raises(DENIED):
            application(statement)


def test_one_worker_can_be_given_one_message_schema_only(sql: Sql, as_: As) -> None:
    sql("select penstock.create_message_schema('private')")
    sql("grant usage on schema messages, private to test_nobody")
    sql("grant select, update, delete on messages.message to test_nobody")
    sql("grant insert on messages.message_archive to test_nobody")
    [(secret,)] = sql("insert into private.message (message) values ('\"secret\"') returning id")
    sql("update private.message set lock_expires_at = now() + interval '1 minute'")
    [(number,)] = sql("insert into messages.message (message) values ('1') returning id")
    worker = as_("nobody")
    [(created_at,)] = worker(
        "update messages.message set lock_expires_at = now() + interval '1 minute' returning created_at"
    )
    archive = """insert into {schema}.message_archive (id, created_at, message, result, handled_by)
                 values (%s, %s, '"secret"', 'failed', 'worker')"""
    # A message of another queue is not found by its id, and the archive cannot be read by way of what is returned.
    with pytest.raises(psycopg.Error, match="this archive row could be of"):
        worker(archive.format(schema="messages"), secret, created_at)
    for statement in (
        archive.format(schema="private"),
        archive.format(schema="messages") + " returning details",
    ):
        with pytest.raises(DENIED):
            worker(statement, number, created_at)
    for statement in ("delete from messages.message_archive", "select * from private.message"):
        with pytest.raises(DENIED):
            worker(statement)
    with worker.connection.transaction():
        worker("delete from messages.message where id = %s", number)
        worker(archive.format(schema="messages"), number, created_at)
    assert sql("select id, message, result::text from messages.message_archive") == [(number, 1, "failed")]
    assert sql("select count(*) from private.message where lock_expires_at is not null") == [(1,)]


HOSTILE = """
    create schema evil_{role};
    create function evil_{role}.now_us() returns bigint language sql as 'select 0::bigint';
    create function evil_{role}.now() returns timestamptz language plpgsql as $$ begin raise 'hijacked'; end $$;
    create function evil_{role}.lost(a bigint, b bigint) returns boolean language plpgsql
        as $$ begin raise 'hijacked'; end $$;
    create operator evil_{role}.= (leftarg = bigint, rightarg = bigint, function = evil_{role}.lost);
    create operator evil_{role}.< (leftarg = bigint, rightarg = bigint, function = evil_{role}.lost);
    create function evil_{role}.joined(a text, b text) returns text language plpgsql
        as $$ begin raise 'hijacked'; end $$;
    create operator evil_{role}.|| (leftarg = text, rightarg = text, function = evil_{role}.joined);
    create temp table queue (queue_id int, name text, lane_id int);
    create temp table log ("position" bigint);
    create temp table compat_schema (schema_id int, queue_id int, schema_name text, kind text);
    create temp view pg_namespace as select 'x'::text as nspname;
    set search_path = evil_{role}, pg_temp, pg_catalog, public;
"""


def test_a_hostile_search_path_changes_nothing(sql: Sql, as_: As) -> None:
    [(database,)] = sql("select current_database()")
    for role in ROLES:
        sql(f"grant create on database {database} to test_{role}")
        for statement in HOSTILE.replace("{role}", role).strip().split(";\n"):
            as_(role)(statement)
    producer, consumer, observer, admin = (as_(role) for role in ROLES)
    producer("""select penstock.send('q', '{"n": 1}')""")
    [(message_id, token)] = consumer("select id, token from penstock.receive('q', consumer => 'c')")
    consumer("select penstock.ack('q', %s, %s)", message_id, token)
    producer("call jobs.enqueue('{}')")
    [(taken,)] = consumer("select msg_id from jobs.dequeue('c')")
    consumer("call jobs.message_ack(%s, 'c')", taken)
    producer("insert into messages.message (message) values ('3')")
    [(number,)] = consumer("update messages.message set lock_expires_at = '2100-01-01' returning id")
    consumer("delete from messages.message where id operator(pg_catalog.=) %s", number)
    admin("select penstock.declare('q', '{\"max_retries\": 3}')")
    admin("select penstock.create_queue_schema('made')")
    admin("update made.queue_configuration set setting_value = '4' where setting_name = 'max_retries'")
    admin("select * from penstock.sweep()")
    assert sql("select name, max_retries from penstock.queue where name in ('q', 'made') order by 1") == [
        ("made", 4),
        ("q", 3),
    ]
    assert observer("select reason_why from jobs.message_history") == [("ACK",)]
    assert [row[0] for row in sql("select count(*) from penstock.dead_letter")] == [0]


def test_python_works_with_the_rights_of_a_role(sql: Sql, as_: As, postgres_url: str) -> None:
    as_("nobody")
    producer, consumer, observer, admin = (
        penstock.connect(postgres_url.replace("postgres@", f"test_{role}@")) for role in ROLES
    )
    try:
        sent = producer.queue("q").send({"n": 25})
        [delivery] = consumer.queue("q").receive(consumer="c")
        assert delivery.id == sent
        with pytest.raises(penstock.StoreError, match="penstock_consumer"):
            producer.queue("q").receive(consumer="p")
        with pytest.raises(penstock.StoreError, match="penstock_producer"):
            consumer.queue("q").send({})
        with pytest.raises(penstock.StoreError, match="declare"):
            consumer.queue("q", max_retries=1)
        with pytest.raises(penstock.StoreError, match="permission denied"):
            observer.queue("q").flush()
        delivery.ack()
        assert observer.queue("q").stats(group="default").done == 1
        assert [entry.event for entry in observer.queue("q").audit(sent)] == ["send", "receive", "ack"]
        assert admin.queue("q", max_retries=4).policy().max_retries == 4
        admin.sweep()
    finally:
        for store in (producer, consumer, observer, admin):
            store.close()


def test_a_function_of_the_readers_own_sees_no_rows_of_other_queues(sql: Sql, as_: As) -> None:
    """A cheap function in a condition could be called before the condition of the view, with rows of others."""
    sql("select penstock.create_queue_schema('private')")
    sql("""call private.enqueue('{"is": "secret"}', null, 0, 'secret')""")
    sql("""call jobs.enqueue('{"is": "mine"}', null, 0, 'mine')""")
    sql("insert into messages.message (message) values ('\"also mine\"')")
    sql("grant usage on schema jobs, messages to test_nobody")
    sql("grant select on all tables in schema jobs, messages to test_nobody")
    reader = as_("nobody")
    seen: list[str] = []
    reader.connection.add_notice_handler(lambda notice: seen.append(notice.message_primary or ""))
    reader("""create function pg_temp.see(value text) returns boolean language plpgsql cost 0.0000001
              as $$ begin raise notice '%', value; return true; end $$""")
    # Plans in which the condition of the view comes late.
    reader("set enable_nestloop = off")
    reader("select * from jobs.message_queue where pg_temp.see(created_by)")
    reader("select * from jobs.message_audit where pg_temp.see(audit_by)")
    reader("select * from messages.message where pg_temp.see(message::text)")
    assert any("mine" in value for value in seen)
    assert any("also mine" in value for value in seen)
    assert not [value for value in seen if "secret" in value]
