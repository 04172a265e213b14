"""Programs written for the stored-procedure conventions run as they are: only the connection string is ours."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tests.engines.postgres.sql.conftest import Sql, connect
from tests.servers.clients.client_programs import node_words

# The pattern of the conventions' own test after a deployment: everything in one transaction, checked in between.
POST_DEPLOY_TEST = """
create procedure test01.post_deploy_test(rounds integer)
language plpgsql as $$
declare
    client_id varchar(128) = 'client01';
    current timestamp;
    empty_id uuid := cast('00000000-0000-0000-0000-000000000000' as uuid);
    expires timestamp;
    msg_id uuid default uuid_generate_v4();
    msg_json json = '{}';
    counted integer;
    audited integer;
begin
    call test01.reset_queue();
    for turn in 1..rounds loop
        call test01.enqueue(msg_json);
    end loop;
    select count(*) into counted from test01.message_audit;
    assert counted = rounds, 'one row of the audit for each message, not ' || counted;
    for turn in 1..rounds loop
        select count(*) into audited from test01.message_audit;
        select b.msg_id, b.expires, b.msg_json into msg_id, expires, msg_json from test01.dequeue(client_id, 30) as b;
        assert msg_id is not null and msg_id <> empty_id, 'there are messages left';
        current := current_timestamp;
        assert expires > current, 'the lease lies ahead';
        select count(*) into counted from test01.message_queue as q
        where q.message_id = msg_id and q.leased_by = client_id;
        assert counted = 1, 'the client holds it';
        begin
            case turn % 4
                when 0 then call test01.message_rej(msg_id, client_id, 'REJ: bad format');
                when 1 then call test01.message_nak(msg_id, client_id, 'NAK: uow fail');
                when 2 then call test01.message_reschedule(msg_id, 900, client_id, 'RSH: temp. unavailable');
                else call test01.message_ack(msg_id, client_id, 'ACK: uow success');
            end case;
        exception when others then
            raise exception 'turn %: %', turn, sqlerrm;
        end;
        select count(*) into counted from test01.message_audit;
        assert counted = audited + 2, 'one row for the dequeue and one for what came of it';
    end loop;
    select b.msg_id, b.expires into msg_id, expires from test01.dequeue(client_id) as b;
    assert msg_id = empty_id and expires is null, 'nothing is left that could be handed out now';
    assert (select count(*) from test01.message_queue) = rounds / 2, 'naks and reschedules wait';
    assert (select count(*) from test01.message_history) = rounds / 4;
    assert (select count(*) from test01.dead_letter) = rounds / 4;
end $$
"""


@pytest.fixture
def test01(sql: Sql) -> Sql:
    sql("select penstock.create_queue_schema('test01')")
    return sql


def test_the_test_after_a_deployment_passes_in_one_transaction(test01: Sql) -> None:
    test01(POST_DEPLOY_TEST)
    test01("call test01.post_deploy_test(20)")
    test01("call test01.post_deploy_test(8)")
    test01("call test01.reset_queue()")
    assert test01("select count(*) from test01.message_audit") == [(0,)]


def test_the_declarations_of_the_document_run_in_a_plain_session(test01: Sql) -> None:
    test01("""call test01.enqueue('{"n": 1}')""")
    test01("""
        do $$
        declare
            msg_id uuid default uuid_generate_v4();
            expires TIMESTAMP;
            msg_json json = '{}';
            client_id varchar = 'client01';
            lease_duration integer = 30;
        begin
            select q.msg_id, q.expires, q.msg_json
                into msg_id, expires, msg_json
                from test01.dequeue(client_id, lease_duration) as q;
            assert expires between localtimestamp + interval '20 seconds' and localtimestamp + interval '31 seconds';
            call test01.message_ack(msg_id, client_id, 'ack');
        end $$
    """)
    assert test01("select message_json from test01.message_history") == [({"n": 1},)]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/St_Johns"])
def test_expires_is_a_timestamp_in_the_time_zone_of_the_session(test01: Sql, zone: str) -> None:
    test01(f"set timezone = '{zone}'")
    test01("call test01.enqueue('{}')")
    [(kind, ahead)] = test01(
        "select pg_typeof(d.expires)::text, extract(epoch from d.expires - localtimestamp) "
        "from test01.dequeue('c', 30) as d"
    )
    assert kind == "timestamp without time zone"
    assert 20 < ahead <= 31


class Client:
    """A client as people write it for these conventions: a connection for each call, times without time zone."""

    def __init__(self, connection_string: str, schema_name: str = "test01") -> None:
        self.connection_string = connection_string
        self.schema_name = schema_name

    def enqueue(self, message: str, who_by: str = "system", item_ttl: int = 4320) -> str:
        message_id = str(uuid.uuid4())
        self._call("enqueue", message, message_id, 0, who_by, item_ttl)
        return message_id

    def dequeue(self, client_id: str, lease_seconds: int = -1) -> tuple[str, datetime | None, object]:
        statement = f"select b.msg_id, b.expires, b.msg_json from {self.schema_name}.dequeue(%s, %s) as b"
        with psycopg.connect(self.connection_string) as connection:
            [row] = connection.execute(statement.encode(), (client_id, lease_seconds)).fetchall()
        return str(row[0]), row[1], row[2]

    def settle(self, call: str, *arguments: object) -> None:
        self._call(f"message_{call}", *arguments)

    def _call(self, procedure: str, *arguments: object) -> None:
        # Literals, as clients of these conventions send them: their types are found by the server.
        given = ", ".join(str(one) if isinstance(one, int) else f"'{one}'" for one in arguments)
        with psycopg.connect(self.connection_string) as connection:
            connection.execute(f"call {self.schema_name}.{procedure}({given})".encode())


def test_a_client_in_python(test01: Sql, postgres_url: str) -> None:
    client = Client(f"{postgres_url}&options=-ctimezone%3DUTC")
    sent = [client.enqueue(json.dumps({"n": number}), who_by="producer 1") for number in range(4)]
    for call in ("ack", "nak", "rej", "reschedule"):
        message_id, expires, payload = client.dequeue("client 7")
        assert expires is not None
        assert expires > datetime.now(UTC).replace(tzinfo=None)
        assert payload == {"n": sent.index(message_id)}
        arguments = (message_id, 3600, "client 7", call) if call == "reschedule" else (message_id, "client 7", call)
        client.settle(call, *arguments)
    assert client.dequeue("client 7") == (str(uuid.UUID(int=0)), None, {})
    trails = test01(
        "select message_id, array_agg(message_state_id order by audit_id) from test01.message_audit "
        "where message_state_id <> 91 group by 1"
    )
    assert {str(message_id): states for message_id, states in trails} == {
        sent[0]: [1, 2, 3],
        sent[1]: [1, 2, 1],
        sent[2]: [1, 2, 7],
        sent[3]: [1, 2, 4],
    }


def test_a_client_in_node(test01: Sql, postgres_url: str) -> None:
    url = f"{postgres_url}&options=-ctimezone%3DUTC"
    done = subprocess.run(
        node_words("stored_procedures.mjs", url),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "TZ": "UTC"},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"settled": ["ack", "nak", "rej", "rsh"], "empty": str(uuid.UUID(int=0))}
    assert test01("select count(*) from test01.message_history") == [(1,)]
    assert test01("select reason_why from test01.dead_letter") == [("REJ-Test",)]


def test_uuid_generate_v4_can_be_called_with_and_without_the_schema(test01: Sql, postgres_url: str) -> None:
    [(in_schema, in_public)] = test01("select test01.uuid_generate_v4(), uuid_generate_v4()")
    assert {in_schema.version, in_public.version} == {4}
    assert in_schema != in_public
    with connect(postgres_url, options="-csearch_path=test01") as connection:
        assert len(Sql(connection)("select uuid_generate_v4()")) == 1
    test01("select penstock.drop_queue_schema('test01')")
    assert test01("select count(*) from pg_proc where proname = 'uuid_generate_v4'") == [(0,)]


def test_a_function_of_that_name_in_public_is_left_alone(sql: Sql) -> None:
    sql(
        "create function public.uuid_generate_v4() returns uuid language sql "
        "as $$ select uuid_in('11111111-1111-4111-8111-111111111111') $$"
    )
    sql("select penstock.create_queue_schema('test01')")
    sql("call test01.enqueue('{}')")
    assert sql("select uuid_generate_v4() = any (array(select message_id from test01.message_queue))") == [(False,)]
    sql("select penstock.drop_queue_schema('test01')")
    assert str(sql("select uuid_generate_v4()")[0][0]).startswith("1111")
    sql("drop function public.uuid_generate_v4()")


@pytest.mark.parametrize("creator", ["", "two\nlines\tand a tab", "ü" * 128, "系" * 255, " spaces "])
def test_created_by_is_any_text(test01: Sql, creator: str) -> None:
    test01("call test01.enqueue('{}', null, 0, %s)", creator)
    assert test01("select created_by from test01.message_queue") == [(creator,)]
    [(message_id,)] = test01("select msg_id from test01.dequeue('c')")
    test01("call test01.message_reschedule(%s, -1, %s)", message_id, creator)
    assert test01("select audit_by from test01.message_audit where message_state_id in (1, 4) order by audit_id") == [
        (creator,),
        (creator,),
    ]


@pytest.mark.parametrize("state", ["leased", "ready", "retried", "held"])
def test_a_negative_reschedule_moves_the_expiry_too(test01: Sql, state: str) -> None:
    test01("call test01.enqueue('{}', null, %s)", 600 if state == "held" else 0)
    [(message_id, before)] = test01("select message_id, message_expires from test01.message_queue")
    if state in ("leased", "retried"):
        test01("select test01.dequeue('c')")
    if state == "retried":
        test01("call test01.message_nak(%s, 'c')", message_id)
    test01("call test01.message_reschedule(%s, -90)", message_id)
    [(after,)] = test01("select message_expires from test01.message_queue")
    assert before - after == timedelta(seconds=90)
    assert test01("select msg_id from test01.dequeue('c')") == [(message_id,)]


def test_a_negative_delay_keeps_the_order_of_the_sends_and_a_negative_reschedule_is_next(test01: Sql) -> None:
    for payload, delay in ((1, 0), (2, -100), (3, 0)):
        test01("call test01.enqueue(%s, null, %s)", str(payload), delay)
    [(message_id,)] = test01("select msg_id from test01.dequeue('c')")
    test01("call test01.message_reschedule(%s, -60)", message_id)
    taken = [test01("select msg_json from test01.dequeue('c')") for _ in range(3)]
    assert taken == [[(1,)], [(2,)], [(3,)]]


def test_a_reschedule_before_the_expiry_ends_the_message(test01: Sql) -> None:
    test01("call test01.enqueue('{}', null, 0, 'c', 20)")
    [(message_id,)] = test01("select msg_id from test01.dequeue('c')")
    test01("call test01.message_reschedule(%s, -1201)", message_id)
    assert test01("select msg_id from test01.dequeue('c')") == [(uuid.UUID(int=0),)]
    test01("call test01.cron_unlock()")
    assert test01("select message_id, message_state_id from test01.dead_letter") == [(message_id, 6)]
