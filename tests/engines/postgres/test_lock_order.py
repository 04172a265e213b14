"""Those who settle or take over messages of the same leases lock them in one order: nobody runs into a deadlock, which
the server would only find after a second."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

import psycopg
import pytest

import penstock
from penstock import Delivery, Queue, Store
from penstock.client.aio.call import Operation, Phase
from penstock.client.aio.coalescer import CallGroup, commit
from tests.engines.postgres.fixtures import Begin

ACK = "select penstock.ack(%s, %s, %s)"


@pytest.fixture
def leased(queue: Queue) -> list[Delivery]:
    """Two messages, each under a lease of its own."""
    queue.send_many([b"1", b"2"])
    return [queue.receive()[0], queue.receive()[0]]


def ack(client: psycopg.Connection, delivery: Delivery) -> None:
    client.execute(ACK, ["orders", delivery.id, delivery.token])


def deadlocks(watcher: psycopg.Connection) -> int:
    watcher.execute("select pg_stat_force_next_flush()")
    [[count]] = watcher.execute("select deadlocks from pg_stat_database where datname = current_database()").fetchall()
    return int(count)


def test_settlements_in_opposite_order_do_not_wait_for_each_other(
    queue: Queue, leased: list[Delivery], other: psycopg.Connection, begin: Begin, watcher: psycopg.Connection
) -> None:
    ack(other, leased[0])
    both = begin(lambda: queue.settle([penstock.Ack(leased[1]), penstock.Ack(leased[0])]))
    ack(other, leased[1])
    other.commit()
    assert [one.ok for one in both.result(60)] == [True, True], "the same had been said before, which is harmless"
    assert deadlocks(watcher) == 0


def test_taking_over_leaves_what_another_transaction_settles(
    store: Store, leased: list[Delivery], other: psycopg.Connection, begin: Begin, watcher: psycopg.Connection
) -> None:
    ack(other, leased[0])
    ids = [leased[1].id, leased[0].id]
    taking = begin(lambda: store.engine.take_over("orders", "default", "bob", ids, 30))
    try:
        taken = taking.result(60)
    except TimeoutError:
        other.rollback()  # it waits for this one, and the end of the test for it
        raise AssertionError("a claim waits for a transaction that stays open") from None
    assert [taken.id_of(row) for row in taken.rows] == [leased[1].id]
    with pytest.raises(psycopg.Error, match="lost"):
        ack(other, leased[1])
    other.rollback()
    [again] = store.engine.take_over("orders", "default", "bob", ids[1:], 30).rows
    assert taken.id_of(again) == leased[0].id, "the other did not settle it after all"
    assert deadlocks(watcher) == 0


def test_a_group_commit_settles_first_and_receives_last(store: Store) -> None:
    ran: list[str] = []

    def run(name: str, items: Sequence[str] = ()) -> list[str]:
        ran.append(name)
        return list(items)

    phases = {"settle": Phase.SETTLE, "receive": Phase.RECEIVE}
    names = ["receive q2 g", "send q", "settle q2 g", "flush", "send q", "settle q1 g", "receive q1 g"]
    group = CallGroup()
    for name in names:
        operation = Operation(partial(run, name), phases.get(name.split()[0], Phase.WRITE), tuple(name.split()))
        group.add(operation, None if name == "flush" else [name], Future())
    commit(store.engine, group.ready())
    assert ran == ["settle q1 g", "settle q2 g", "send q", "flush", "send q", "receive q1 g", "receive q2 g"]
