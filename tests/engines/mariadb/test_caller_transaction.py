"""A send in the caller's own transaction."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest
import sqlalchemy

import penstock
from tests.engines.mariadb.server import own_connection, server


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
    engine = sqlalchemy.create_engine(url.replace("mysql://", "mysql+pymysql://"))
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
