"""Messages and cursors while the log goes on to its next segment."""

from __future__ import annotations

import threading

import psycopg
import pytest

from penstock import Queue

OPEN_NEXT = "update penstock.segment set opened_at = 0; select penstock.sweep_segments()"
LANE = "select r.group_id, l.lane_id from penstock.reader as r join penstock.lane as l using (queue_id)"


def payloads(queue: Queue, limit: int = 10) -> list[bytes]:
    return [delivery.payload for delivery in queue.receive(limit=limit)]


@pytest.mark.parametrize("limit", [1, 10])
def test_what_is_sent_while_the_next_segment_is_being_opened_is_not_passed_over(
    postgres_url: str, queue: Queue, limit: int
) -> None:
    queue.send(b"before")
    assert payloads(queue) == [b"before"]
    with psycopg.connect(postgres_url) as slow, psycopg.connect(postgres_url) as sweeping:
        queue.send(b"old segment", transaction=slow)
        sweeping.execute(OPEN_NEXT)
        queue.send(b"new segment")
        slow.commit()
        received = payloads(queue, limit)
        sweeping.commit()
    received += payloads(queue, limit)
    received += payloads(queue, limit)
    assert sorted(received) == [b"new segment", b"old segment"]


def test_a_receive_that_waits_while_another_goes_on_to_the_next_segment_does_not_repeat_it(
    postgres_url: str, queue: Queue
) -> None:
    queue.send_many([b"one", b"two", b"three"])
    assert payloads(queue, 1) == [b"one"]
    waited: list[bytes] = []
    waiting = threading.Thread(target=lambda: waited.extend(payloads(queue, 1)))
    with psycopg.connect(postgres_url) as ahead, psycopg.connect(postgres_url, autocommit=True) as watching:
        ahead.execute(f"select pg_advisory_xact_lock(group_id, lane_id) from ({LANE}) as lane")
        waiting.start()
        until_it_waits(watching)
        watching.execute(OPEN_NEXT)
        row = ahead.execute("select payload from penstock.take('orders', null, 'ahead', 1) limit 1").fetchone()
        ahead.commit()
        waiting.join()
    assert row == (b"two",)
    assert waited == [b"three"]


def until_it_waits(connection: psycopg.Connection) -> None:
    waiting = (
        "select count(*) from pg_locks as k join pg_database as d on d.oid = k.database "
        "where d.datname = current_database() and k.locktype = 'advisory' and not k.granted"
    )
    while connection.execute(waiting).fetchone() != (1,):
        pass
