"""transaction=: a send that commits or rolls back with the caller's writes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

from penstock import DuplicateAddress, InvalidInput, Outgoing, PayloadTooLarge, Queue, Store
from tests.conformance.assertions import assert_books_balance, payloads, take_all
from tests.conformance.clock import Clock


@pytest.fixture
def own(queue: Queue, url: str) -> Iterator[apsw.Connection]:
    """The caller's own connection to the same file, with a table of their own."""
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.set_busy_timeout(10_000)
    connection.execute("create table invoice (number integer primary key)")
    yield connection
    connection.close()


def invoices(connection: apsw.Connection) -> list[Any]:
    return [number for (number,) in connection.execute("select number from invoice order by number")]


def test_a_send_is_seen_when_the_caller_commits_and_not_before(queue: Queue, own: apsw.Connection) -> None:
    own.execute("begin immediate")
    own.execute("insert into invoice values (7)")
    message_id = queue.send({"invoice": 7}, transaction=own)
    assert queue.peek() == []
    own.execute("commit")
    [delivery] = take_all(queue)
    assert (delivery.id, delivery.json()) == (message_id, {"invoice": 7})
    assert invoices(own) == [7]
    assert_books_balance(queue, sent=1)


def test_a_send_is_never_seen_when_the_caller_rolls_back(queue: Queue, own: apsw.Connection) -> None:
    own.execute("begin immediate")
    own.execute("insert into invoice values (7)")
    queue.send({"invoice": 7}, transaction=own)
    own.execute("rollback")
    assert queue.receive() == []
    assert invoices(own) == []
    queue.send("after")
    assert payloads(take_all(queue)) == ["after"]
    assert_books_balance(queue, sent=1)


def test_a_send_is_undone_with_the_callers_savepoint(queue: Queue, own: apsw.Connection) -> None:
    own.execute("begin immediate")
    queue.send("kept", transaction=own)
    own.execute("savepoint maybe")
    own.execute("insert into invoice values (8)")
    queue.send("undone", transaction=own)
    own.execute("rollback to maybe")
    own.execute("release maybe")
    queue.send("also kept", transaction=own)
    own.execute("commit")
    assert payloads(take_all(queue)) == ["kept", "also kept"]
    assert invoices(own) == []
    assert_books_balance(queue, sent=2)


def test_a_send_works_in_a_transaction_that_began_by_reading(queue: Queue, own: apsw.Connection) -> None:
    own.execute("begin")
    assert invoices(own) == []
    queue.send(1, transaction=own)
    own.execute("commit")
    assert payloads(take_all(queue)) == [1]


def test_a_send_works_in_the_context_manager_of_the_connection(queue: Queue, own: apsw.Connection) -> None:
    with own:
        own.execute("insert into invoice values (7)")
        queue.send("kept", transaction=own)
    with contextlib.suppress(ZeroDivisionError), own:
        queue.send("undone", transaction=own)
        raise ZeroDivisionError
    assert payloads(take_all(queue)) == ["kept"]


def test_many_are_sent_in_one_transaction_with_every_option(queue: Queue, own: apsw.Connection, clock: Clock) -> None:
    own.execute("begin immediate")
    sent = queue.send_many(
        [b"now", Outgoing(payload=b"held", delay_seconds=13), Outgoing(payload=b"addressed", address="desk")],
        transaction=own,
    )
    own.execute("commit")
    assert [delivery.id for delivery in take_all(queue)] == [sent[0], sent[2]]
    clock.advance(seconds=14)
    assert [delivery.id for delivery in take_all(queue)] == [sent[1]]
    with pytest.raises(DuplicateAddress):
        queue.send(1, address="desk")


def test_an_address_of_a_rolled_back_send_is_free(queue: Queue, own: apsw.Connection) -> None:
    own.execute("begin immediate")
    queue.send(1, address="desk", transaction=own)
    own.execute("rollback")
    queue.send(2, address="desk")


def test_a_refused_send_leaves_the_callers_transaction_as_it_was(store: Store, own: apsw.Connection) -> None:
    small = store.queue("small", max_payload_bytes=8)
    small.send(0, address="desk")
    own.execute("begin immediate")
    own.execute("insert into invoice values (7)")
    with pytest.raises(PayloadTooLarge):
        small.send_many([b"1", b"123456789"], transaction=own)
    with pytest.raises(DuplicateAddress):
        small.send_many([b"2", Outgoing(payload=b"3", address="desk")], transaction=own)
    small.send(b"4", transaction=own)
    own.execute("commit")
    assert invoices(own) == [7]
    assert [delivery.payload for delivery in take_all(small)] == [b"0", b"4"]


def test_a_new_queue_may_be_made_in_a_transaction_and_is_gone_with_it(store: Store, own: apsw.Connection) -> None:
    own.execute("begin immediate")
    store.queue("brand new").send(1, transaction=own)
    own.execute("rollback")
    assert [info.name for info in store.queues()] == ["orders"]
    store.queue("brand new").send(2)
    assert payloads(take_all(store.queue("brand new"))) == [2]


def test_two_queues_are_sent_to_in_one_transaction(store: Store, own: apsw.Connection) -> None:
    own.execute("begin immediate")
    store.queue("first").send(1, transaction=own)
    store.queue("second").send(2, transaction=own)
    own.execute("commit")
    assert payloads(take_all(store.queue("first"))) == [1]
    assert payloads(take_all(store.queue("second"))) == [2]


def test_the_same_id_in_a_transaction_is_the_same_send(queue: Queue, own: apsw.Connection) -> None:
    chosen = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
    own.execute("begin immediate")
    assert queue.send(1, id=chosen, transaction=own) == queue.send(2, id=chosen, transaction=own) == chosen
    own.execute("commit")
    assert payloads(take_all(queue)) == [1]


def test_a_connection_to_another_file_is_refused(queue: Queue, tmp_path: Path) -> None:
    elsewhere = apsw.Connection(str(tmp_path / "elsewhere.db"))
    elsewhere.execute("begin immediate")
    with pytest.raises(InvalidInput, match="transaction"):
        queue.send(1, transaction=elsewhere)
    elsewhere.execute("rollback")
    elsewhere.close()
    assert queue.peek() == []


@pytest.mark.parametrize("wrong", ["a string", 7, object()], ids=["string", "number", "object"])
def test_something_that_is_no_connection_is_refused(queue: Queue, wrong: object) -> None:
    with pytest.raises(InvalidInput, match="transaction"):
        queue.send(1, transaction=wrong)
    assert queue.peek() == []


def test_a_connection_outside_a_transaction_commits_the_send_by_itself(queue: Queue, own: apsw.Connection) -> None:
    queue.send(1, transaction=own)
    assert not own.in_transaction
    assert payloads(take_all(queue)) == [1]


def test_a_connection_with_habits_of_its_own_can_be_used(queue: Queue, own: apsw.Connection) -> None:
    def as_dict(cursor: apsw.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
        return dict(zip((name for name, _ in cursor.get_description()), row, strict=True))

    own.row_trace = as_dict
    own.execute("pragma foreign_keys = on")
    own.execute("begin immediate")
    queue.send_many(
        [b"plain", Outgoing(payload=b"held", delay_seconds=13), Outgoing(payload=b"at a desk", address="desk")],
        transaction=own,
    )
    own.execute("commit")
    assert [delivery.payload for delivery in take_all(queue)] == [b"plain", b"at a desk"]


def test_a_waiting_receive_wakes_when_the_caller_commits(live_queue: Queue, url: str) -> None:
    own = apsw.Connection(url.removeprefix("sqlite:///"))
    own.set_busy_timeout(10_000)
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(live_queue.receive, wait_seconds=30)
        own.execute("begin immediate")
        live_queue.send("wake up", transaction=own)
        own.execute("commit")
        assert payloads(waiter.result(60)) == ["wake up"]
    own.close()
