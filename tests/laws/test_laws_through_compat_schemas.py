"""The laws hold through every SQL schema: legal trails, one lease at a time, and every message counted."""

from __future__ import annotations

import json
import random
import uuid
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import psycopg

import penstock
from penstock.domain.lifecycle import is_legal
from tests.engines.postgres.sql.conftest import Sql, connect

LOCK = """update messages.message set lock_expires_at = clock_timestamp() + interval '1 minute'
          where id = %s and lock_expires_at is null returning id"""
ARCHIVE = """insert into messages.message_archive (created_at, message, result, handled_by)
             values (%s, %s, %s, 'worker')"""


def check(store: penstock.Store, name: str, ids: list[str]) -> None:
    """Every trail is legal, and every message is counted once."""
    queue = store.queue(name)
    for message_id in ids:
        state = None
        for entry in queue.audit(message_id):
            assert is_legal(state, entry.event, entry.state), f"{message_id}: {state} -{entry.event}-> {entry.state}"
            state = entry.state
    stats = queue.stats(group="default")
    live = stats.held + stats.available + stats.redo + stats.in_progress
    assert live + sum(stats.outcomes.values()) == len(ids)


def test_any_mix_of_calls_gives_legal_trails(sql: Sql, store: penstock.Store, seed: int) -> None:
    """Random calls through three interfaces; refused ones change nothing."""
    dice = random.Random(seed)
    sql("select penstock.create_queue_schema('jobs')")
    sql("select penstock.create_message_schema('messages', 'jobs')")
    queue = store.queue("jobs", max_retries=2, lease_seconds=30)
    ids: list[str] = []
    for _ in range(150):
        move = dice.randrange(9)
        client = dice.choice(["c1", "c2"])
        known = dice.choice(ids) if ids else str(uuid.uuid4())
        try:
            match move:
                case 0:
                    ids.append(queue.send(len(ids)))
                case 1:
                    ids.append(str(uuid.uuid4()))
                    sql("call jobs.enqueue(%s, %s, %s)", json.dumps(len(ids)), ids[-1], dice.choice([0, 0, 60]))
                case 2:
                    sql("select jobs.dequeue(%s)", client)
                case 3:
                    for delivery in queue.receive(consumer=client):
                        if dice.random() < 0.5:
                            delivery.nak("again", delay_seconds=0)
                case 4:
                    sql(f"call jobs.message_{dice.choice(['ack', 'nak', 'rej'])}(%s, %s)", known, client)
                case 5:
                    sql("call jobs.message_reschedule(%s, %s)", known, dice.choice([-1, 40]))
                case 6:
                    [number] = dice.choice(sql("select id from messages.message where id is not null") or [(0,)])
                    sql(LOCK, number)
                case 7:
                    [number] = dice.choice(sql("select id from messages.message where id is not null") or [(0,)])
                    sql("delete from messages.message where id = %s", number)
                case 8:
                    rows = sql("select created_at, message from messages.message where lock_expires_at is not null")
                    if rows:
                        created_at, message = dice.choice(rows)
                        result = dice.choice(["success", "rejected", "failed", "lock_expired"])
                        sql(ARCHIVE, created_at, json.dumps(message), result)
        except psycopg.Error as refused:
            if not (refused.diag.sqlstate or "").startswith("PN"):
                raise
    check(store, "jobs", ids)


def test_workers_of_all_schemas_never_hold_the_same_message(sql: Sql, store: penstock.Store, postgres_url: str) -> None:
    rounds = 60
    sql("select penstock.create_queue_schema('jobs')")
    sql("select penstock.create_message_schema('messages', 'jobs')")
    sql("update jobs.queue_configuration set setting_value = '600' where setting_name = 'lease_duration'")
    queue = store.queue("jobs")
    ids = queue.send_many([{"n": number} for number in range(rounds)])
    numbers = [number for (number,) in sql("select id from messages.message order by id")]
    start = Barrier(4)

    def lock(order: int) -> list[int]:
        with connect(postgres_url) as connection:
            mine = Sql(connection)
            start.wait()
            return [number for number in numbers[::order] if mine(LOCK, number)]

    def dequeue(client: str) -> list[int]:
        with connect(postgres_url) as connection:
            mine = Sql(connection)
            start.wait()
            taken = (mine("select msg_json from jobs.dequeue(%s)", client)[0][0] for _ in range(rounds))
            return [numbers[message["n"]] for message in taken if message]

    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(lock, 1), pool.submit(lock, -1), pool.submit(dequeue, "a"), pool.submit(dequeue, "b")]
        taken = [number for worker in workers for number in worker.result()]
    assert sorted(taken) == numbers
    assert queue.stats(group="default").in_progress == rounds
    check(store, "jobs", list(ids))


def test_messages_locked_in_turn_leave_no_notes_for_the_cursor(sql: Sql) -> None:
    sql("select penstock.create_message_schema('messages')")
    numbers = [
        row[0]
        for row in sql(
            "insert into messages.message (message) select to_jsonb(n) from generate_series(1, 20) n returning id"
        )
    ]
    for number in (numbers[3], *numbers[:3], *numbers[4:]):
        assert sql(LOCK, number) == [(number,)]
    assert sql("select count(*) from penstock.skip") == [(0,)]
