"""enqueue with an id that was used before: the same payload is the same send, another one is an error."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.engines.postgres.fixtures import Begin, begin, watcher
from tests.engines.postgres.sql.conftest import Sql, connect, take_and

__all__ = ["begin", "watcher"]

ENDINGS = {
    "waiting": [],
    "held": [],
    "leased": ["select * from jobs.dequeue('c')"],
    "done": ["ack"],
    "dead": ["rej"],
}


@pytest.fixture
def chosen(sql: Sql) -> uuid.UUID:
    sql("select penstock.create_queue_schema('jobs')")
    return uuid.uuid4()


@pytest.mark.parametrize("state", ENDINGS)
def test_another_payload_is_refused_whatever_became_of_the_first(sql: Sql, chosen: uuid.UUID, state: str) -> None:
    delay = 60 if state == "held" else 0
    sql("""call jobs.enqueue('{"n": 1}', %s, %s)""", chosen, delay)
    for step in ENDINGS[state]:
        if step in ("ack", "rej"):
            take_and(sql, step)
        else:
            sql(step)
    before = sql("select message_id, message_state_id from jobs.message_audit order by audit_id")
    with pytest.raises(psycopg.errors.UniqueViolation, match=f"message {chosen} of queue 'jobs' was sent before"):
        sql("""call jobs.enqueue('{"n": 2}', %s)""", chosen)
    # The same value, written in another way too.
    sql("""call jobs.enqueue('{"n": 1}', %s)""", chosen)
    sql("""call jobs.enqueue('{"n":1}', %s)""", chosen)
    assert sql("select message_id, message_state_id from jobs.message_audit order by audit_id") == before


def test_of_two_at_the_same_time_one_is_refused(sql: Sql, chosen: uuid.UUID, begin: Begin, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as first, connect(postgres_url) as second:
        first.execute("call jobs.enqueue('1', %s)", [chosen])
        waiting = begin(lambda: second.execute("call jobs.enqueue('2', %s)", [chosen]))
        first.commit()
        with pytest.raises(psycopg.errors.UniqueViolation, match="another payload"):
            waiting.result(timeout=60)
    assert sql("select message_json from jobs.message_queue") == [(1,)]


def test_many_who_send_the_same_send_it_once(sql: Sql, chosen: uuid.UUID, postgres_url: str) -> None:
    def send(_: int) -> None:
        with connect(postgres_url) as session:
            session.execute("call jobs.enqueue('7', %s)", [chosen])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(send, range(8)))
    assert sql("select message_json from jobs.message_queue") == [(7,)]
