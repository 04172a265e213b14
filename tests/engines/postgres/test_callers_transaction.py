"""Law 15: a call never waits for the transaction of its own caller, and sweeps do not wait for one that stays open."""

from __future__ import annotations

import psycopg
import pytest

from penstock import Queue, Store


@pytest.mark.parametrize("queue_name", ["new", "orders"], ids=["new queue", "new priority"])
def test_a_send_in_a_transaction_that_made_the_lane_itself_goes_in(
    store: Store, queue: Queue, other: psycopg.Connection, queue_name: str
) -> None:
    queue.send(b"known")
    other.execute("select penstock.send(%s, '1', priority => 5)", (queue_name,))
    store.queue(queue_name).send({"second": True}, priority=5, transaction=other)
    other.commit()
    got = store.queue(queue_name).receive(limit=10)
    assert [one.json() for one in got if one.priority == 5] == [1, {"second": True}]


@pytest.mark.parametrize("verb", ["redrive('orders')", "flush('orders')", "sweep()"])
def test_sweeps_pass_by_a_queue_that_an_open_transaction_changes(
    store: Store, queue: Queue, other: psycopg.Connection, verb: str
) -> None:
    queue.send_many([{"n": n} for n in range(5)])
    queue.receive()[0].reject("bad")
    neighbour = store.queue("neighbour")
    neighbour.send(b"1")
    other.execute(f"select penstock.{verb}".encode())
    with psycopg.connect(other.info.dsn, autocommit=True) as third:
        third.execute("set statement_timeout = '10s'")
        third.execute("select penstock.sweep()")
        third.execute("call penstock.sweep_queues()")
    store.sweep()
    other.rollback()
