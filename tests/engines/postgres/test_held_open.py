"""A transaction kept open for long: rows that are gone cannot be cleaned up, and nobody may stumble over them."""

from __future__ import annotations

import time
from typing import Any

import psycopg
import pytest

import penstock

CYCLES = 3000
SPARE = 100
# More than a cycle takes, also on a busy machine; those that are to be over are waited for.
LEASE_SECONDS = 1.0
# What may be read more than at the beginning, as indexes have grown; those who look at what is gone read far more.
MORE = 15
TAKE = "select * from penstock.receive_messages('orders', 'default', 'c', 1, 3600)"
ACK = "select penstock.ack_whole('orders', 'default', {token}, 1, {position})"


@pytest.mark.parametrize("in_flight", [0, 1, 2])
@pytest.mark.parametrize("lease_seconds", [LEASE_SECONDS, 3600], ids=["leases over", "leases not over"])
def test_receive_and_ack_do_not_look_at_leases_that_are_gone(
    postgres_url: str, lease_seconds: float, in_flight: int
) -> None:
    """Whatever the statistics say of the few leases that are there."""
    with (
        psycopg.connect(postgres_url) as holder,
        psycopg.connect(postgres_url, autocommit=True) as other,
        penstock.connect(postgres_url) as store,
    ):
        holder.execute("select pg_current_xact_id()")
        queue = store.queue("orders")
        queue.send_many([b"x"] * (CYCLES + SPARE))
        at_first = blocks(postgres_url, queue)
        for _ in range(CYCLES):
            queue.ack_many(queue.receive(lease_seconds=lease_seconds))
        if lease_seconds == LEASE_SECONDS:
            time.sleep(LEASE_SECONDS)
        without_statistics = blocks(postgres_url, queue)
        for _ in range(in_flight):
            queue.receive(lease_seconds=3600)
        other.execute("analyze penstock.lease")
        with_statistics = blocks(postgres_url, queue)
        print(at_first, without_statistics, with_statistics)
        for then, later in zip(at_first * 2, without_statistics + with_statistics, strict=True):
            assert later <= then + MORE
        holder.rollback()


def blocks(url: str, queue: penstock.Queue) -> list[int]:
    """How many a receive and an ack read on a connection that has done the same before; it leaves nothing in flight.
    The least of several: autovacuum may analyse a table at any moment, and plans are made anew then."""
    rounds: list[tuple[int, int]] = []
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(5):
            (delivery,) = queue.receive(lease_seconds=3600)
            ack = ACK.format(token=delivery.token, position=delivery.position)
            rounds.append((_read(connection, TAKE), _read(connection, ack)))
            (taken,) = _taken(queue)
            queue.engine.ack_all(queue.name, "default", *taken)
    return [min(read) for read in zip(*rounds, strict=True)]


def _taken(queue: penstock.Queue) -> list[tuple[int, list[int]]]:
    """Those that `TAKE` has made."""
    return [(one.token, [one.position]) for one in queue.engine.leases(queue.name, "default") if one.consumer == "c"]


def _read(connection: psycopg.Connection[Any], statement: str) -> int:
    row = connection.execute(f"explain (analyze, buffers, timing off, format json) {statement}").fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
