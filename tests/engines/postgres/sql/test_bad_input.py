"""Bad input through SQL: an error with a code and a hint, and nothing half-done."""

from __future__ import annotations

import psycopg
import pytest

from tests.engines.postgres.sql.conftest import Sql

# statement: code, a word of the message. `taken` is a message of jobs held by `c`.
REFUSED = {
    """call jobs.enqueue('{"broken"')""": ("22P02", "json"),
    "call jobs.enqueue(null)": ("PN100", "message_json is null"),
    "call jobs.enqueue('1', 'not-a-uuid')": ("22P02", "not-a-uuid"),
    "call jobs.enqueue('1', '00000000-0000-0000-0000-000000000000')": ("PN100", "00000000"),
    "call jobs.enqueue('1', null, 0, repeat('x', 256))": ("PN101", "created_by"),
    "select * from jobs.dequeue(null)": ("PN101", "client_id"),
    "select * from jobs.dequeue('')": ("PN101", "client_id"),
    "select * from jobs.dequeue(repeat('x', 256))": ("PN101", "256 bytes"),
    "call jobs.message_ack(null, 'c')": ("PN201", "did not own"),
    "call jobs.message_ack('{taken}', null)": ("PN201", "did not own"),
    "call jobs.message_reschedule(null)": ("PN300", "no live message"),
    "call jobs.add_audit('{taken}', 12, 'c', 'x')": ("PN100", "state 12"),
    "call jobs.add_audit(null, 1, 'c', 'x')": ("PN100", "msg_id"),
    "insert into jobs.message_queue (message_json) values ('1')": ("PN200", "message_queue"),
    "delete from jobs.message_queue": ("PN200", "message_queue"),
    "update jobs.message_audit set reason_why = 'nothing'": ("PN200", "message_audit"),
    "delete from jobs.message_audit": ("PN200", "message_audit"),
    "call nowhere.enqueue('1')": ("3F000", "nowhere"),
    "select penstock.send('q', '{\"broken\"')": ("22P02", "json"),
    "select penstock.send('q', null)": ("PN100", "payload"),
    "select penstock.send('', '1')": ("PN101", "queue"),
    "select penstock.send('q', '1', priority => -1)": ("PN100", "priority"),
    "select penstock.send('q', '1', headers => '[1]')": ("PN100", "headers"),
    "select penstock.declare('q', '{\"leese_seconds\": 1}')": ("PN102", "leese_seconds"),
    "select penstock.declare('q', '{\"max_retries\": \"many\"}')": ("PN102", "max_retries"),
    "select penstock.receive('q', \"limit\" => 0)": ("PN100", "limit"),
    "select penstock.receive('q', lease_seconds => -1)": ("PN100", "lease_seconds"),
    "select penstock.redrive('jobs', \"limit\" => -1)": ("PN100", "limit must be between 1 and 1000000, not -1"),
    "select penstock.purge('jobs', \"limit\" => null)": ("PN100", "not null"),
    "select penstock.purge('jobs', outcome => 'faild')": ("PN100", "'faild' is not an outcome"),
    "select penstock.seek('jobs', 'default', '-5')": ("PN100", "not '-5'"),
    "select penstock.register('q', null, 'c', heartbeat_seconds => -1)": ("PN100", "heartbeat_seconds"),
    "select penstock.prepare('q', '{0,-1}')": ("PN100", "priority must be between 0 and 1000000, not -1"),
    "select penstock.declare('q', '[1]')": ("PN102", "not [1]"),
    "select penstock.ack('jobs', '{taken}', 1)": ("PN201", "{taken}"),
    "select penstock.nak('nowhere', '{taken}', 1)": ("PN300", "nowhere"),
    "select penstock.extend('jobs', '{taken}', 1, -5)": ("PN100", "seconds"),
    "select penstock.ack('jobs', null, null)": ("PN100", "id is null"),
    "select penstock.nak('jobs', '{taken}', null)": ("PN100", "token is null"),
    "select penstock.reject('jobs', null, 1)": ("PN100", "id is null"),
    "select penstock.reschedule('jobs', '{taken}', null)": ("PN100", "token is null"),
    "select penstock.extend('jobs', null, 1, 5)": ("PN100", "id is null"),
    "select penstock.nak('jobs', '{taken}', 1, null, 'nan')": ("PN100", "at most 3162240000 (a century), not NaN"),
    "select penstock.send('q', '1', delay_seconds => 'nan')": (
        "PN100",
        "delay_seconds must be a number of seconds, at most 3162240000 (a century), not NaN",
    ),
    "select penstock.send('q', '1', ttl_seconds => 0)": ("PN100", "ttl_seconds"),
    "select penstock.send('q', '1', key => '')": ("PN101", "key"),
    "select penstock.send_many('q', array['1', null]::jsonb[])": ("PN100", "payload"),
    "select penstock.send('q', '1', priority => 1000001)": ("PN100", "1000001"),
    "select penstock.send('q', '1', delay_seconds => 1e300)": ("PN100", "delay_seconds"),
    "select penstock.send('q', '1', delay_seconds => 'infinity')": ("PN100", "delay_seconds"),
    "select penstock.send(repeat('q', 256), '1')": ("PN101", "256 bytes"),
    "select penstock.send(e'new\\nline', '1')": ("PN101", "control character"),
    "select penstock.send('q', '1', address => e'\\u009f')": ("PN101", "address"),
    "select penstock.send('q', '1', batch => '')": ("PN101", "batch"),
    "select penstock.send_bytes('q', null)": ("PN100", "payload"),
    "select penstock.append('', '{a}')": ("PN101", "queue"),
    "select penstock.append('jobs', array[null]::bytea[])": ("PN100", "payload 1 of 1 is null"),
    "select penstock.append('q', array['a', null]::bytea[])": ("PN100", "payload 2 of 2 is null"),
    "select penstock.append('q', null)": ("PN100", "payloads are null"),
    "select penstock.seek('jobs', 'default', 'middle')": ("PN100", "a position, a time"),
    "select penstock.seek('jobs', 'default', null)": ("PN100", "'start' or 'end', not null"),
    "select penstock.send_messages('q', null, null, null)": ("PN100", "payload"),
    "select penstock.batch_set_end('q', 'b', null)": ("PN100", "payload"),
    "select penstock.batch_set_abort('q', 'b', '1', priority => -1)": ("PN100", "priority"),
    "select penstock.batch_set_end('q', '', '1')": ("PN101", "batch"),
    # Accepted, it would make the last message of the batch impossible to settle.
    """select penstock.batch_open('q', 'b', '{"all": "done"}')""": ("PN100", "batch_set_end"),
    """select penstock.batch_open('q', 'b', '{"payload": "###"}')""": ("PN100", "base64"),
    """select penstock.batch_open('q', 'b', null, '{"payload": "e30=", "options": {"prio": 1}}')""": ("PN100", "prio"),
    "select penstock.send_messages('q', array['a', null]::bytea[], '{null,null}', null)": ("PN100", "payload"),
    "select penstock.send_messages('q', '{a,b}', '{null}', null)": ("PN100", "2 payloads have 1 content types"),
    "select penstock.send_messages('q', '{a}', '{null}', '[]')": ("PN100", "an array of 1"),
    "select penstock.send_messages('q', '{a}', '{null}', '{}')": ("PN100", "options"),
    "select penstock.send_messages('q', '{a}', '{null}', '[7]')": ("PN100", "object"),
    "select penstock.send_messages('', '{a}', '{null}', null)": ("PN101", "queue"),
    """select penstock.send_messages('q', '{a,b}', '{null,null}', '[{}, {"priority": -1}]')""": ("PN100", "priority"),
    """select penstock.send_messages('q', '{a}', '{null}', '[{"priority": 1.5}]')""": ("PN100", "1.5"),
    """select penstock.send_messages('q', '{a}', '{null}', '[{"priority": "1"}]')""": ("PN100", "priority"),
    """select penstock.send_messages('q', '{a}', '{null}', '[{"prioritee": 1}]')""": ("PN100", "prioritee"),
    """select penstock.send_messages('q', '{a}', '{null}', '[{"delay_seconds": 1e300}]')""": ("PN100", "delay_seconds"),
    """select penstock.send_messages('q', '{a}', '{null}', '[{"ttl_seconds": 0}]')""": ("PN100", "ttl_seconds"),
    """select penstock.send_messages('q', '{a}', '{null}', '[{"deadline_at": 1e30}]')""": ("PN100", "deadline_at"),
    """select penstock.send_messages('q', '{a}', '{null}', '[{"deadline_at": -62135596800000001}]')""": (
        "PN100",
        "-621355",
    ),
    "select penstock.send('q', '1', deadline_at => 'infinity')": ("PN100", "deadline_at must be within the years"),
    "select penstock.send('q', '1', deadline_at => '4000-01-01 BC')": ("PN100", "4000-01-01"),
    """select penstock.send_messages('q', '{a}', '{null}', '[{"key": 7}]')""": ("PN100", "key"),
    """select penstock.send_messages('q', '{a}', '{null}', '[{"address": ""}]')""": ("PN101", "address"),
    """select penstock.send_messages('q', '{a}', '{null}', '[{"headers": "[1]"}]')""": ("PN100", "headers"),
    """select penstock.send_messages('q', '{a}', '{null}', '[{"id": "nonsense"}]')""": ("22P02", "nonsense"),
    "select penstock.trim('q')": ("PN100", "either upto"),
    "select penstock.trim('q', keep => -1)": ("PN100", "-1"),
    "select penstock.trim('q', 1, 1)": ("PN100", "either upto"),
}


@pytest.fixture
def jobs(sql: Sql) -> Sql:
    sql("select penstock.create_queue_schema('jobs')")
    sql("call jobs.enqueue('20')")
    return sql


def test_refused_input_says_why_and_changes_nothing(jobs: Sql) -> None:
    [(taken,)] = jobs("select msg_id from jobs.dequeue('c')")
    tables = ("queue", "lane", "group", "log", "held", "identity", "address", "batch", "audit", "cursor", "compat_note")
    state = "select " + ", ".join(f"(select count(*) from penstock.{table})" for table in tables)
    before = jobs(state)
    wrong = []
    for statement, (code, word) in REFUSED.items():
        try:
            jobs(statement.replace("{taken}", str(taken)))
        except psycopg.Error as error:
            if error.diag.sqlstate != code or word.replace("{taken}", str(taken)) not in str(error):
                wrong.append(f"{statement}: {error.diag.sqlstate} {error}")
        else:
            wrong.append(f"{statement}: not refused")
        if jobs(state) != before:
            wrong.append(f"{statement}: changed something")
            before = jobs(state)
    assert not wrong, "\n".join(wrong)


def test_an_error_in_the_middle_of_a_transaction_undoes_it_whole(jobs: Sql) -> None:
    def send_and_fail() -> None:
        with jobs.connection.transaction():
            jobs("call jobs.enqueue('21')")
            jobs("call jobs.message_ack(gen_random_uuid(), 'c')")

    with pytest.raises(psycopg.Error, match="did not own"):
        send_and_fail()
    assert jobs("select message_json from jobs.message_queue") == [(20,)]


def test_a_database_without_the_schema_says_so(sql: Sql) -> None:
    with pytest.raises(psycopg.errors.InvalidSchemaName, match="test01"):
        sql("call test01.enqueue('{}')")


def test_a_send_to_a_batch_that_has_ended_is_refused_until_another_is_open(sql: Sql) -> None:
    sql("select penstock.send('q', '1', batch => 'nightly')")
    assert sql("select state from penstock.batch_cancel('q', 'nightly')") == [("cancelled",)]
    with pytest.raises(psycopg.Error, match=r"batch 'nightly' of queue 'q' is cancelled .*batch_open") as refused:
        sql("select penstock.send('q', '2', batch => 'nightly')")
    assert refused.value.diag.sqlstate == "PN203"
    assert sql("select state from penstock.batch_open('q', 'nightly')") == [("open",)]
    sql("select penstock.send('q', '3', batch => 'nightly')")
    assert sql("select state, total from penstock.batch_start('q', 'nightly')") == [("running", 1)]
