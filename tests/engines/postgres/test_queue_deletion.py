"""Deletion of a queue with open transactions that have seen it."""

from __future__ import annotations

from typing import Any, Literal

import psycopg
import pytest

from penstock import NotFound, Queue, Refused, Store
from tests.conformance.test_delete import fill
from tests.engines.postgres.fixtures import Begin

# Every column that holds the number of a queue, or of something that belongs to one.
NUMBERS = """
    select c.table_name, c.column_name from information_schema.columns as c join information_schema.tables as t
        using (table_schema, table_name)
    where c.table_schema = 'penstock' and t.table_type = 'BASE TABLE'
        and c.column_name in ('queue_id', 'group_id', 'lane_id', 'batch_id')
"""


def rows_left(watcher: psycopg.Connection) -> dict[str, int]:
    tables = {table for table, _ in watcher.execute(NUMBERS).fetchall()}
    assert len(tables) > 20
    counts = {table: watcher.execute(f"select count(*) from penstock.{table}").fetchone() for table in tables}
    return {table: count[0] for table, count in counts.items() if count and count[0]}


def test_nothing_is_left_in_any_table(store: Store, queue: Queue, watcher: psycopg.Connection) -> None:
    fill(queue)
    assert rows_left(watcher)
    queue.delete()
    for _ in range(3):
        store.sweep()
    assert rows_left(watcher) == {}


def test_a_send_that_commits_after_the_deletion_is_not_lost(
    store: Store, queue: Queue, other: psycopg.Connection, watcher: psycopg.Connection
) -> None:
    queue.send("gone")
    plain = queue.send({"kept": 1}, transaction=other)
    rich = queue.send({"kept": 2}, transaction=other, priority=3, headers={"a": "b"}, key="k", ttl_seconds=900)
    late = queue.send({"kept": 3}, transaction=other, delay_seconds=900)
    assert queue.delete() == 1
    for _ in range(3):
        store.sweep()
    assert [info.name for info in store.queues()] == [], "not before it commits"
    other.commit()
    for _ in range(3):
        store.sweep()
    received = queue.receive(10)
    assert [(one.id, one.json()["kept"], one.priority) for one in received] == [(plain, 1, 0), (rich, 2, 3)]
    assert received[1].headers == {"a": "b"}
    assert received[1].key == "k"
    assert received[1].expires_at is not None
    assert [one.id for one in queue.messages("held").messages] == [late]
    left = watcher.execute("select count(*) from penstock.deleted_queue").fetchone()
    assert left == (0,)


@pytest.mark.parametrize("verb", ["flush", "delete"])
def test_what_is_not_sent_again_yet_goes_with_a_later_flush(
    store: Store, queue: Queue, other: psycopg.Connection, verb: str
) -> None:
    queue.send("gone")
    queue.send("late", transaction=other)
    queue.send("late and held", transaction=other, delay_seconds=900)
    queue.delete()
    other.commit()
    queue.send("newer")
    assert getattr(queue, verb)() == 3
    for _ in range(3):
        store.sweep()
    assert queue.receive(10) == []
    assert queue.messages("held").messages == []


def test_a_send_that_is_rolled_back_leaves_nothing(
    store: Store, queue: Queue, other: psycopg.Connection, watcher: psycopg.Connection
) -> None:
    queue.send(1)
    queue.send(2, transaction=other)
    queue.delete()
    other.rollback()
    for _ in range(3):
        store.sweep()
    assert rows_left(watcher) == {}
    assert store.queues() == []


def test_a_deletion_that_is_rolled_back_changes_nothing(queue: Queue, other: psycopg.Connection) -> None:
    sent = queue.send(1)
    other.execute("select penstock.delete_queue('orders')")
    other.rollback()
    assert [one.id for one in queue.receive()] == [sent]


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
@pytest.mark.parametrize("options", [{}, {"ttl_seconds": 20}], ids=["claimed", "tracked"])
def test_a_message_that_was_received_before_the_deletion_ended_does_not_come_back(
    store: Store, other: psycopg.Connection, delivery: Literal["at_least_once", "at_most_once"], options: dict[str, Any]
) -> None:
    queue = store.queue("orders", delivery=delivery)
    queue.send("gone", priority=3)
    assert other.execute("select penstock.delete_queue('orders')").fetchone() == (1,)
    # The lane of this priority is new: the deletion has not locked it.
    first, second = (queue.send(payload, **options) for payload in ("received", "kept"))
    assert [one.id for one in queue.receive()] == [first]
    other.commit()
    for _ in range(3):
        store.sweep()
    assert [(one.id, one.attempt) for one in queue.receive(10)] == [(second, 1)]


@pytest.mark.parametrize("policy", [{}, {"ordered": True}], ids=["plain", "ordered"])
@pytest.mark.parametrize("options", [{}, {"ttl_seconds": 20}], ids=["claimed", "tracked"])
def test_a_receive_that_waits_for_a_deletion_comes_after_it(
    store: Store, other: psycopg.Connection, begin: Begin, policy: dict[str, Any], options: dict[str, Any]
) -> None:
    queue = store.queue("orders", **policy)
    queue.send("gone")
    other.execute("select penstock.delete_queue('orders')")
    sent = queue.send("kept", **options)
    receiving = begin(queue.receive)
    other.commit()
    assert receiving.result(60) == []
    for _ in range(3):
        store.sweep()
    assert [one.id for one in queue.receive(10)] == [sent]


def test_a_consumer_that_registered_before_the_deletion_ended_goes_with_its_queue(
    store: Store, queue: Queue, other: psycopg.Connection, watcher: psycopg.Connection
) -> None:
    queue.send("gone", priority=3)
    other.execute("select penstock.delete_queue('orders')")
    consumer = queue.register("c1")
    queue.send("received")
    assert len(consumer.receive()) == 1
    other.commit()
    watcher.execute("update penstock.consumer set heartbeat_at = 0")
    for _ in range(3):
        store.sweep()
    assert rows_left(watcher) == {}
    assert store.queues() == []


def test_a_declaration_that_waits_for_a_deletion_makes_the_queue_anew(
    store: Store, queue: Queue, other: psycopg.Connection, begin: Begin
) -> None:
    queue.send("gone")
    other.execute("select penstock.delete_queue('orders')")
    declaring = begin(lambda: store.queue("orders", lease_seconds=7))
    other.commit()
    declaring.result(60)
    assert [(info.name, info.policy.lease_seconds) for info in store.queues()] == [("orders", 7)]


@pytest.mark.parametrize("call", ["seek", "trim", "remove"])
def test_other_calls_that_wait_for_a_deletion_come_after_it(
    store: Store, queue: Queue, other: psycopg.Connection, begin: Begin, call: str
) -> None:
    sent = queue.send("gone")
    queue.receive()
    other.execute("select penstock.delete_queue('orders')")
    waiting = begin(
        {
            "seek": lambda: queue.seek("default", "start"),
            "trim": lambda: queue.trim(keep=0),
            "remove": lambda: queue.remove([sent]),
        }[call]
    )
    other.commit()
    if call == "seek":
        with pytest.raises(NotFound, match="there is no queue 'orders'"):
            waiting.result(60)
    else:
        assert waiting.result(60) == 0
    assert store.queues() == []


def test_a_schema_of_other_conventions_is_named(queue: Queue, watcher: psycopg.Connection) -> None:
    watcher.execute("select penstock.create_queue_schema('test01')")
    watcher.commit()
    with pytest.raises(Refused, match="queue 'test01' was not deleted: schema 'test01' stands for it: drop that first"):
        queue.store.queue("test01").delete()
