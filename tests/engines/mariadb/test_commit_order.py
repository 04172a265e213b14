"""Law 8 with a lock per queue: order within a queue, and no waiting between queues."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import penstock
from penstock.domain.message import PLAIN
from penstock.engines.mariadb import connection as connection_module
from tests.conformance.clock import Clock
from tests.engines.mariadb.server import await_lock_wait, own_connection


def test_an_open_send_makes_senders_of_other_queues_wait_for_nothing(url: str, store: penstock.Store) -> None:
    slow, other = own_connection(url), store.queue("fast")
    try:
        store.queue("slow").send(b"open", transaction=slow)
        other.send(b"1")
        [delivery] = other.receive()
        delivery.ack()
        slow.commit()
    finally:
        slow.close()
    assert [one.payload for one in store.queue("slow").receive()] == [b"open"]


@pytest.mark.parametrize("options", [{}, {"address": "a"}, {"address": "a", "priority": 5}], ids=["", "held", "lane"])
@pytest.mark.parametrize("names", [("middle", "after"), ("after", "middle")])
def test_an_open_send_makes_no_removal_from_another_queue_wait(
    url: str, options: dict[str, Any], names: tuple[str, str]
) -> None:
    """Also one that locks its own queue, or makes a lane. Searches that walked over rows of other queues waited."""
    slow = own_connection(url)
    try:
        with penstock.connect(url, busy_seconds=5) as store:
            for name in names:
                store.queue(name).send(b"0")
            other = store.queue("after")
            other.send_many([b"1", b"2", b"3"])
            store.queue("middle").send(b"open", transaction=slow, **options)
            [first] = other.receive()
            assert other.remove([first.id]) == 1
            assert other.trim(keep=2) == 1
            assert other.flush() == 2
            other.delete()
            slow.commit()
            assert [one.payload for one in store.queue("middle").receive(limit=10)] == [b"0", b"open"]
    finally:
        slow.close()


def test_an_open_send_makes_nobody_wait_on_its_own_queue(url: str) -> None:
    """Law 15, with a wait for locks that is far shorter than the transaction."""
    slow, slower = own_connection(url), own_connection(url)
    try:
        with penstock.connect(url, busy_seconds=1) as store:
            queue = store.queue("orders")
            queue.send(b"open", transaction=slow)
            queue.send_many([b"opened later", b"and more"], transaction=slower)
            for number in range(3):
                queue.send(f"{number}".encode())
                [delivery] = queue.receive()
                assert delivery.payload == f"{number}".encode()
                delivery.ack()
            store.sweep()
            assert queue.stats("default").total == 3
            assert queue.trim(keep=0) == 3
            slower.commit()
            queue.send(b"after")
            slow.commit()
            assert [one.payload for one in queue.receive(limit=10)] == [b"opened later", b"and more", b"after", b"open"]
    finally:
        slow.close()
        slower.close()


def test_an_open_send_with_an_address_holds_its_queue_and_the_error_says_so(url: str) -> None:
    slow = own_connection(url)
    try:
        with penstock.connect(url, busy_seconds=1) as store:
            queue = store.queue("orders")
            queue.send(b"first")
            queue.send(b"open", address="a", transaction=slow)
            with pytest.raises(penstock.StoreUnavailable, match="held the queue for 1 s; nothing was changed"):
                queue.send(b"behind")
            slow.commit()
            queue.send(b"after")
            assert [one.payload for one in queue.receive(limit=10)] == [b"first", b"open", b"after"]
    finally:
        slow.close()


@pytest.mark.parametrize("look", ["find", "browse", "peek"])
def test_a_read_waits_for_a_writer_when_a_sender_has_committed(
    url: str, store: penstock.Store, look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "IMPATIENT_SECONDS", 60)
    writer, sender, watcher = (own_connection(url) for _ in range(3))
    queue = store.queue("orders")
    queue.send(b"first")
    calls: dict[str, Callable[[], bool]] = {
        "find": lambda: queue.find(sent).payload == b"second",
        "browse": lambda: [one.payload for one in queue.engine.browse("orders", 0, None, 10)] == [b"first", b"second"],
        "peek": lambda: [one.payload for one in queue.peek(10)] == [b"first", b"second"],
    }
    try:
        queue.send(b"undone", address="a", transaction=writer)
        sent = queue.send(b"second", transaction=sender)
        sender.commit()
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(calls[look])
            await_lock_wait(watcher)
            writer.rollback()
            assert found.result()
    finally:
        for connection in (writer, sender, watcher):
            connection.close()


def test_counts_of_a_queue_that_is_held_have_all_that_committed(
    url: str, store: penstock.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 15: the open transaction of another caller neither stops them nor makes them wrong."""
    monkeypatch.setattr(connection_module, "IMPATIENT_SECONDS", 0)
    slow, sender = own_connection(url), own_connection(url)
    queue, other = store.queue("orders"), store.queue("other")
    chosen = "11111111-1111-4111-8111-111111111111"
    try:
        for one in (queue, other):
            one.send(b"0", id=chosen)
        queue.send(b"open", address="a", transaction=slow)
        queue.send(b"the same", id=chosen, transaction=sender)
        again = queue.send(b"twice", transaction=sender)
        queue.send(b"twice", id=again, delay_seconds=60, transaction=sender)
        held = queue.send(b"later", delay_seconds=60, transaction=sender)
        assert (queue.stats("default").total, queue.engine.count("orders")) == (1, 1)
        sender.commit()
        stats = queue.stats("default")
        assert (stats.total, stats.available, stats.lag, stats.held) == (3, 2, 2, 1)
        assert (queue.engine.unread("orders"), queue.engine.count("orders")) == (2, 3)
        with pytest.raises(penstock.StoreUnavailable, match=r"messages of committed transactions .* try again"):
            queue.find(held)
        assert queue.find(chosen).payload == b"0"
        assert (other.stats("default").total, other.find(chosen).payload) == (1, b"0")
        slow.rollback()
        stats = queue.stats("default")
        assert (stats.total, stats.available, stats.lag, stats.held) == (3, 2, 2, 1)
        assert queue.find(held).payload == b"later"
    finally:
        slow.close()
        sender.close()


def test_counts_of_a_queue_that_an_open_transaction_makes_are_refused(
    url: str, store: penstock.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "IMPATIENT_SECONDS", 0)
    slow, sender = own_connection(url), own_connection(url)
    queue = store.queue("orders")
    try:
        queue.send(b"second", transaction=sender)
        queue.send(b"open", address="a", transaction=slow)
        sender.commit()
        with pytest.raises(penstock.StoreUnavailable, match="could not be appended"):
            queue.stats("default")
        slow.commit()
        assert queue.stats("default").available == 2
    finally:
        slow.close()
        sender.close()


def test_a_message_is_not_held_because_its_sender_read_the_clock_later(url: str) -> None:
    """A transaction that took its time first appends what committed later."""
    sender, holder = own_connection(url), own_connection(url)
    clock = Clock()
    try:
        with penstock.connect(url, clock=clock) as store:
            queue = store.queue("orders")
            queue.send(b"first")
            queue.send(b"open", address="a", transaction=holder)
            queue.send(b"second", transaction=sender)
            sender.commit()
            clock.advance(seconds=-1)
            assert queue.stats("default").available == 2
            holder.rollback()
            assert [one.payload for one in queue.receive(limit=10)] == [b"first", b"second"]
    finally:
        sender.close()
        holder.close()


def test_a_sweep_passes_over_a_queue_that_is_held(url: str) -> None:
    slow = own_connection(url)
    clock = Clock()
    try:
        with penstock.connect(url, clock=clock) as store:
            held, other = store.queue("a held one"), store.queue("other")
            store.schedule("a", "* * * * *", held.name, b"tick")
            store.schedule("b", "* * * * *", other.name, b"tick")
            for queue in (held, other):
                queue.send(b"1", delay_seconds=1)
            held.send(b"open", address="a", transaction=slow)
            clock.advance(seconds=60)
            report = store.sweep()
            assert (report.promoted, report.fired) == (1, 1)
            assert sorted(one.payload for one in other.receive(limit=10)) == [b"1", b"tick"]
            slow.rollback()
            report = store.sweep()
            assert (report.promoted, report.fired) == (1, 1)
            assert sorted(one.payload for one in held.receive(limit=10)) == [b"1", b"tick"]
    finally:
        slow.close()


def test_calls_that_commit_together_do_not_wait_for_one_on_a_queue_that_is_held(url: str) -> None:
    slow = own_connection(url)
    try:
        with penstock.connect(url, busy_seconds=2) as store:
            store.queue("held").send(b"0")
            store.queue("held").send(b"open", address="a", transaction=slow)
            engine = store.engine
            first, second, third = engine.together(
                [partial(engine.send, name, [(b"1", None, PLAIN)]) for name in ("other", "held", "third")]
            )
            assert isinstance(second, penstock.StoreUnavailable)
            slow.rollback()
            assert [one.id for one in store.queue("other").receive(limit=10)] == first
            assert [one.id for one in store.queue("third").receive(limit=10)] == third
            assert [one.payload for one in store.queue("held").receive(limit=10)] == [b"0"]
    finally:
        slow.close()


def test_readers_stop_before_an_open_send(url: str, queue: penstock.Queue) -> None:
    queue.send(b"1")
    slow = own_connection(url)
    try:
        queue.send(b"2", transaction=slow)
        engine = queue.engine
        before = engine.settled("orders")
        mark = engine.horizon("orders")
        assert [one.payload for one in engine.browse("orders", 0, before, 10)] == [b"1"]
        slow.commit()
    finally:
        slow.close()
    assert [one.payload for one in engine.browse("orders", before, None, 10)] == [b"2"]
    [part] = engine.window("orders", mark, engine.horizon("orders"), 1)
    assert [batch.column("payload").to_pylist() for batch in engine.read(part)] == [[b"2"]]


def test_a_follower_misses_nothing_of_many_senders(url: str, queue: penstock.Queue) -> None:
    senders, each = 4, 25

    def send(number: int) -> None:
        with penstock.connect(url) as own:
            for count in range(each):
                own.queue("orders").send(f"{number}:{count}".encode())

    threads = [threading.Thread(target=send, args=(number,)) for number in range(senders)]
    seen: list[bytes] = []
    position = 0
    for thread in threads:
        thread.start()
    while True:
        is_last = not any(thread.is_alive() for thread in threads)
        for message in queue.engine.browse("orders", position, None, 1000):
            assert message.position is not None
            position = message.position
            seen.append(message.payload)
        if is_last:
            break
    assert len(seen) == senders * each
    assert set(seen) == {f"{number}:{count}".encode() for number in range(senders) for count in range(each)}


def test_a_call_that_lost_a_deadlock_is_made_again(url: str) -> None:
    """The other transaction has changed more rows, so the server undoes the call of the store."""
    with penstock.connect(url, busy_seconds=60) as store:
        _lose_a_deadlock(url, store)


def _lose_a_deadlock(url: str, store: penstock.Store) -> None:
    orders, emails = store.queue("orders"), store.queue("emails")
    batch = orders.batch("nightly")
    batch.send(b"member")
    emails.send(b"first")
    other = own_connection(url)
    watcher = own_connection(url, autocommit=True)
    try:
        with other.cursor() as cursor:
            cursor.execute("create table ballast (number int primary key)")
            cursor.execute("begin")
            rows = ", ".join(f"({number})" for number in range(2000))
            cursor.execute(f"insert into ballast values {rows}")
            cursor.execute("select queue_id from penstock_queue where name = 'orders' for update")
            call = threading.Thread(target=lambda: batch.send(b"mail", queue="emails"))
            call.start()
            await_lock_wait(watcher)
            cursor.execute("select queue_id from penstock_queue where name = 'emails' for update")
            other.commit()
            call.join(60)
            cursor.execute("drop table ballast")
    finally:
        other.close()
        watcher.close()
    assert not call.is_alive()
    batch.start()
    assert [one.payload for one in emails.receive(limit=10)] == [b"first", b"mail"]
