"""Flaws of earlier versions, reproduced: doctor reports them, and repair fixes them."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import penstock
from penstock import Queue, Repair, Store

# The lock by which senders find out whether anybody listens, in earlier versions and now.
LISTENERS = ["pg_advisory_lock(1347310675, 0)", "pg_advisory_lock(7305793389475492353)"]


@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:
    with penstock.connect(postgres_url) as store:
        yield store


def troubles(store: Store, name: str) -> list[str]:
    return [check.finding for check in store.doctor() if check.name == name and check.level == "error"]


def of(repairs: list[Repair], name: str) -> list[bool]:
    return [one.done for one in repairs if one.name == name]


def wait_until_idle(url: str, pid: int) -> None:
    """For a second: a working session may hold the lock."""
    with psycopg.connect(url, autocommit=True) as own:
        idle = "select state_change < clock_timestamp() - interval '1.1 s' from pg_stat_activity where pid = %s"
        while own.execute(idle, (pid,)).fetchone() != (True,):
            own.execute("select pg_sleep(0.1)")


@pytest.mark.parametrize("lock", LISTENERS)
def test_a_lock_that_a_cancelled_send_left_behind_is_found_and_its_session_ended(
    store: Store, postgres_url: str, lock: str
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as leaking:
        leaking.execute(f"select {lock}")
        wait_until_idle(postgres_url, leaking.info.backend_pid)
        [finding] = troubles(store, "locks")
        assert str(leaking.info.backend_pid) in finding
        assert of(store.repair(), "locks") == [False]
        assert of(store.repair(dry_run=True, terminate=True), "locks") == [False]
        assert leaking.execute("select 1").fetchone() == (1,)
        wait_until_idle(postgres_url, leaking.info.backend_pid)
        assert of(store.repair(terminate=True), "locks") == [True]
        with pytest.raises(psycopg.OperationalError):
            leaking.execute("select 1")
    assert troubles(store, "locks") == []


def test_a_listener_is_no_leak(store: Store, postgres_url: str) -> None:
    queue = store.queue("orders")
    assert queue.receive(wait_seconds=1.5) == []
    assert troubles(store, "locks") == []


def pass_by_mistake(queue: Queue, url: str) -> None:
    """The cursor is moved behind everything, as if it had been read."""
    with psycopg.connect(url, autocommit=True) as own:
        own.execute(
            "update penstock.cursor as c "
            "set snap = pg_current_snapshot(), prev = pg_current_snapshot(), used_up = true "
            "from penstock.group as g where g.group_id = c.group_id and g.name = 'default' and c.number = "
            "(select max(k.number) from penstock.cursor as k where k.group_id = c.group_id and k.lane_id = c.lane_id)"
        )
    assert queue.receive(limit=10) == []


def test_messages_that_a_cursor_passed_by_mistake_are_ready_again(store: Store, postgres_url: str) -> None:
    queue = store.queue("orders")
    queue.send(b"done")
    queue.ack_many(queue.receive())
    queue.send_many([b"lost 1", b"lost 2"])
    assert troubles(store, "lost messages") == []
    pass_by_mistake(queue, postgres_url)
    [finding] = troubles(store, "lost messages")
    assert "2 messages of queue 'orders'" in finding
    assert of(store.repair(dry_run=True), "lost messages") == [False]
    assert of(store.repair(), "lost messages") == [True]
    assert troubles(store, "lost messages") == []
    queue.send(b"new")
    assert [(one.payload, one.attempt) for one in queue.receive(limit=10)] == [
        (b"lost 1", 1),
        (b"lost 2", 1),
        (b"new", 1),
    ]


def test_messages_that_were_passed_on_purpose_are_not_lost(store: Store) -> None:
    queue = store.queue("orders", max_retries=0)
    queue.send_many([b"sought 1", b"sought 2"])
    queue.receive(limit=1)[0].ack()
    queue.seek("default", "end")
    ids = queue.send_many([b"acked", b"dead", b"removed", b"expired", b"leased", b"retried", b"unread"])
    queue.send(b"late", ttl_seconds=1e-3)
    first, second = queue.receive(limit=2)
    first.ack()
    second.reject("no")
    queue.remove([ids[2]])
    queue.receive(limit=1)
    retried = queue.receive(limit=1)
    retried[0].reschedule(60)
    store.queue("orders").receive(limit=1, group="other")
    store.sweep()
    assert troubles(store, "lost messages") == []
    assert store.repair() == []


@pytest.mark.parametrize("kind", ["position", "entry"])
def test_a_sequence_that_is_behind_the_rows_goes_on_after_them(store: Store, postgres_url: str, kind: str) -> None:
    """As after a failover to a logical replica, which has the rows and not the sequences."""
    queue = store.queue("orders")
    queue.send_many([b"1", b"2", b"3"])
    for _ in range(3):
        queue.receive(limit=1)[0].ack()
    with psycopg.connect(postgres_url, autocommit=True) as own:
        own.execute(f"select setval('penstock.{kind}', 1)")
    [finding] = troubles(store, "numbers")
    assert kind in finding
    assert of(store.repair(), "numbers") == [True]
    assert troubles(store, "numbers") == []
    queue.send(b"4")
    assert [one.payload for one in queue.receive(limit=9)] == [b"4"]
