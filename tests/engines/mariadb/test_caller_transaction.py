"""A send in the caller's own transaction."""

from __future__ import annotations

import threading
from typing import Any

import pymysql
import pytest
import sqlalchemy

import penstock
from tests.conformance.clock import Clock
from tests.engines.mariadb.server import await_lock_wait, own_connection, server


def test_a_send_commits_and_rolls_back_with_the_callers_writes(url: str, queue: penstock.Queue) -> None:
    connection = own_connection(url)
    try:
        queue.send(b"undone", transaction=connection)
        connection.rollback()
        message_id = queue.send(b"kept", transaction=connection, priority=1)
        queue.send_many([b"two", b"three"], transaction=connection)
        assert queue.peek() == []
        connection.commit()
    finally:
        connection.close()
    assert queue.find(message_id).payload == b"kept"
    assert [one.payload for one in queue.receive(limit=10)] == [b"two", b"three", b"kept"]


def test_a_send_that_is_refused_leaves_the_callers_transaction_usable(url: str, queue: penstock.Queue) -> None:
    connection = own_connection(url)
    try:
        queue.send(b"first", address="a", transaction=connection)
        with pytest.raises(penstock.DuplicateAddress):
            queue.send(b"second", address="a", transaction=connection)
        queue.send(b"third", transaction=connection)
        connection.commit()
    finally:
        connection.close()
    assert [one.payload for one in queue.receive(limit=10)] == [b"first", b"third"]


def test_rows_as_dictionaries_are_no_obstacle(url: str, queue: penstock.Queue) -> None:
    connection = own_connection(url, cursorclass=pymysql.cursors.DictCursor)
    try:
        queue.send(b"1", transaction=connection)
        connection.commit()
    finally:
        connection.close()
    assert [one.payload for one in queue.receive()] == [b"1"]


def test_sqlalchemy_commits_and_rolls_back_a_send(url: str, queue: penstock.Queue) -> None:
    engine = sqlalchemy.create_engine(url.replace("mysql://", "mysql+pymysql://"), isolation_level="READ COMMITTED")
    try:
        with engine.connect() as connection:
            queue.send(b"undone", transaction=connection)
            connection.rollback()
            queue.send(b"kept", transaction=connection)
            connection.commit()
    finally:
        engine.dispose()
    assert [one.payload for one in queue.receive(limit=10)] == [b"kept"]


def test_a_connection_that_commits_by_itself_is_refused(url: str, queue: penstock.Queue) -> None:
    connection = own_connection(url, autocommit=True)
    try:
        with pytest.raises(penstock.InvalidInput, match="turn autocommit off"):
            queue.send(b"1", transaction=connection)
        connection.begin()
        queue.send(b"1", transaction=connection)
        connection.rollback()
    finally:
        connection.close()
    assert queue.receive() == []


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_send_with_an_address_is_refused_where_it_may_read_an_older_snapshot(
    url: str, queue: penstock.Queue, level: str
) -> None:
    """It would send a second message with an address that is live."""
    connection = own_connection(url, init_command=f"set session transaction isolation level {level}")
    try:
        with pytest.raises(penstock.InvalidInput, match=f"this connection is {level.upper().replace(' ', '-')}"):
            queue.send(b"1", address="a", transaction=connection)
        connection.rollback()
    finally:
        connection.close()
    assert queue.receive() == []


def test_a_serializable_transaction_is_refused(url: str, queue: penstock.Queue) -> None:
    """Its read of the policy would lock the queue."""
    connection = own_connection(url, init_command="set session transaction isolation level serializable")
    try:
        with pytest.raises(penstock.InvalidInput, match="this connection is SERIALIZABLE, in which reads lock"):
            queue.send(b"1", transaction=connection)
    finally:
        connection.close()


def test_the_servers_default_isolation_is_enough_for_a_plain_send(url: str, queue: penstock.Queue) -> None:
    connection = own_connection(url, init_command="set session transaction isolation level repeatable read")
    sent = "11111111-1111-4111-8111-111111111111"
    try:
        with connection.cursor() as cursor:
            cursor.execute("select count(*) from penstock_queue")
        queue.send(b"1", id=sent)
        assert queue.send(b"again", id=sent, transaction=connection) == sent
        queue.send(b"2", transaction=connection)
        connection.commit()
    finally:
        connection.close()
    assert [one.payload for one in queue.receive(limit=10)] == [b"1", b"2"]


@pytest.mark.parametrize("look", ["find", "peek", "stats", "browse", "queues", "receive"])
def test_every_verb_sees_a_message_once_its_sender_has_committed(url: str, store: penstock.Store, look: str) -> None:
    """Also as the first message of a queue that did not exist."""
    connection = own_connection(url)
    queue = store.queue("orders")
    try:
        message_id = queue.send({"n": 1}, transaction=connection, headers={"a": "b"}, created_by="me")
        assert store.queues() == []
        connection.commit()
    finally:
        connection.close()
    match look:
        case "find":
            message = queue.find(message_id)
            assert (message.json(), message.headers, message.created_by) == ({"n": 1}, {"a": "b"}, "me")
        case "peek":
            assert [one.id for one in queue.peek()] == [message_id]
        case "stats":
            assert queue.stats("default").total == 1
        case "browse":
            assert [one.id for one in store.engine.browse("orders", 0, None, 10)] == [message_id]
        case "queues":
            assert [one.name for one in store.queues()] == ["orders"]
        case _:
            assert [one.id for one in queue.receive()] == [message_id]


def test_delay_and_time_to_live_count_from_the_send(url: str) -> None:
    clock = Clock()
    with penstock.connect(url, clock=clock) as store:
        queue = store.queue("orders")
        queue.send(b"0")
        connection = own_connection(url)
        try:
            late = queue.send(b"expired", ttl_seconds=5, transaction=connection)
            queue.send(b"due", delay_seconds=5, transaction=connection)
            queue.send(b"held", delay_seconds=15, transaction=connection)
            clock.advance(seconds=10)
            connection.commit()
        finally:
            connection.close()
        store.sweep()
        assert [letter.id for letter in queue.dead_letters()] == [late]
        assert [one.payload for one in queue.receive(limit=10)] == [b"0", b"due"]
        clock.advance(seconds=5)
        assert [one.payload for one in queue.receive(limit=10)] == [b"held"]


def test_a_waiting_receive_wakes_up_when_the_caller_commits(url: str, queue: penstock.Queue) -> None:
    connection = own_connection(url)
    found: list[bytes] = []
    call = threading.Thread(target=lambda: found.extend(one.payload for one in queue.receive(wait_seconds=60)))
    try:
        queue.send(b"1", transaction=connection)
        call.start()
        connection.commit()
    finally:
        connection.close()
    call.join(60)
    assert found == [b"1"]


def test_an_id_and_an_address_sent_since_the_transaction_began_are_seen(url: str, queue: penstock.Queue) -> None:
    connection = own_connection(url)
    sent = "11111111-1111-4111-8111-111111111111"
    queue.send(b"0")
    try:
        with connection.cursor() as cursor:
            cursor.execute("select count(*) from penstock_queue")
        queue.send(b"1", id=sent)
        queue.send(b"2", address="a")
        assert queue.send(b"1", id=sent, transaction=connection) == sent
        with pytest.raises(penstock.DuplicateAddress):
            queue.send(b"3", address="a", transaction=connection)
        queue.send(b"4", priority=1, transaction=connection)
        connection.commit()
    finally:
        connection.close()
    assert [one.payload for one in queue.receive(limit=10)] == [b"0", b"1", b"2", b"4"]


def test_a_deadlock_is_named_as_what_rolled_the_transaction_back(url: str, store: penstock.Store) -> None:
    """The other transaction has changed more rows, so the server rolls back the one with the send."""
    orders, emails = store.queue("orders"), store.queue("emails")
    orders.send(b"0")
    emails.send(b"0")
    ours, other, watcher = own_connection(url), own_connection(url), own_connection(url, autocommit=True)
    refusals: list[BaseException] = []

    def send() -> None:
        try:
            emails.send(b"second", address="a", transaction=ours)
        except penstock.PenstockError as error:
            refusals.append(error)

    try:
        with other.cursor() as cursor:
            cursor.execute("create table ballast (number int primary key)")
            cursor.execute("begin")
            cursor.execute(f"insert into ballast values {', '.join(f'({number})' for number in range(2000))}")
            cursor.execute("select queue_id from penstock_queue where name = 'emails' for update")
            orders.send(b"first", address="a", transaction=ours)
            call = threading.Thread(target=send)
            call.start()
            await_lock_wait(watcher)
            cursor.execute("select queue_id from penstock_queue where name = 'orders' for update")
            call.join(60)
            other.rollback()
            cursor.execute("drop table ballast")
    finally:
        ours.close()
        other.close()
        watcher.close()
    assert ["the transaction was rolled back: repeat it" in str(error) for error in refusals] == [True]
    assert [one.payload for one in orders.receive(limit=10)] == [b"0"]


def test_a_connection_to_another_database_is_refused(queue: penstock.Queue) -> None:
    connection = server().connect("mysql")
    try:
        with pytest.raises(penstock.InvalidInput, match=r"the store's own database 'test_.*', not to 'mysql'"):
            queue.send(b"1", transaction=connection)
    finally:
        connection.close()


@pytest.mark.parametrize("value", [object(), "connection", 1])
def test_what_is_no_connection_is_refused(queue: penstock.Queue, value: Any) -> None:
    with pytest.raises(penstock.InvalidInput, match="takes an open connection of PyMySQL or mysqlclient"):
        queue.send(b"1", transaction=value)
