"""A send in the caller's own transaction on MariaDB: PyMySQL and mysqlclient, by themselves and behind SQLAlchemy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import sqlalchemy
from sqlalchemy.orm import Session

import penstock
from tests.drivers.mysqlclient import require_mysqlclient
from tests.engines.mariadb.server import READ_COMMITTED, fresh_database, server

DRIVERS = ("pymysql", "MySQLdb")
DIALECTS = {"pymysql": "mysql+pymysql", "MySQLdb": "mysql+mysqldb"}


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name == "MySQLdb":
        require_mysqlclient()
    return name


@pytest.fixture
def url(tmp_path: Path) -> str:
    return fresh_database(tmp_path)


@pytest.fixture
def queue(url: str) -> Iterator[penstock.Queue]:
    with penstock.connect(url) as store:
        yield store.queue("orders")


@pytest.fixture
def connection(driver: str, url: str, queue: penstock.Queue) -> Iterator[Any]:
    module = import_module(driver)
    opened = module.connect(unix_socket=str(server().socket), user="root", database=urlsplit(url).path[1:])
    with closing(opened), closing(opened.cursor()) as cursor:
        cursor.execute(READ_COMMITTED)
        cursor.execute("create table if not exists invoice (number int primary key)")
        opened.commit()
        yield opened
        cursor.execute("drop table invoice")


@pytest.fixture
def engine(driver: str, url: str, queue: penstock.Queue) -> Iterator[sqlalchemy.Engine]:
    made = sqlalchemy.create_engine(url.replace("mysql", DIALECTS[driver], 1), isolation_level="READ COMMITTED")
    yield made
    made.dispose()


def test_a_send_commits_and_rolls_back_with_the_callers_rows(connection: Any, queue: penstock.Queue) -> None:
    with closing(connection.cursor()) as cursor:
        cursor.execute("insert into invoice values (1)")
        queue.send(b"undone", transaction=connection)
        connection.rollback()
        cursor.execute("insert into invoice values (2)")
        sent = queue.send({"invoice": "2 % é"}, transaction=connection, headers={"a": "ü%s"}, created_by="me")
        queue.send_many([bytes(range(256)), b"%(x)s"], transaction=connection)
        assert queue.receive() == []
        connection.commit()
        cursor.execute("select number from invoice")
        assert cursor.fetchall() == ((2,),)
    first, *others = queue.receive(limit=10)
    assert (first.id, first.json(), first.headers, first.created_by) == (sent, {"invoice": "2 % é"}, {"a": "ü%s"}, "me")
    assert [one.payload for one in others] == [bytes(range(256)), b"%(x)s"]


def test_an_address_sees_the_live_messages(connection: Any, queue: penstock.Queue) -> None:
    queue.send(b"first", address="a", transaction=connection)
    with pytest.raises(penstock.DuplicateAddress):
        queue.send(b"second", address="a", transaction=connection)
    queue.send(b"third", transaction=connection)
    connection.commit()
    assert [one.payload for one in queue.receive(limit=10)] == [b"first", b"third"]


def test_what_cannot_be_sent_is_refused(connection: Any, url: str, queue: penstock.Queue) -> None:
    connection.autocommit(True)
    with pytest.raises(penstock.InvalidInput, match="turn autocommit off"):
        queue.send(b"1", transaction=connection)
    connection.autocommit(False)
    connection.select_db("mysql")
    with pytest.raises(penstock.InvalidInput, match="not to 'mysql'"):
        queue.send(b"1", transaction=connection)
    connection.rollback()
    connection.select_db(urlsplit(url).path[1:])
    assert queue.receive() == []


def test_a_connection_of_sqlalchemy_commits_and_rolls_back_a_send(
    engine: sqlalchemy.Engine, queue: penstock.Queue
) -> None:
    with engine.connect() as connection:
        queue.send(b"undone", transaction=connection)
        connection.rollback()
        queue.send(b"kept", transaction=connection)
        connection.commit()
    with engine.begin() as connection:
        queue.send(b"block", transaction=connection)
    assert [one.payload for one in queue.receive(limit=10)] == [b"kept", b"block"]


def test_a_session_of_sqlalchemy_commits_and_rolls_back_a_send(
    engine: sqlalchemy.Engine, queue: penstock.Queue
) -> None:
    with Session(engine) as session:
        queue.send(b"undone", transaction=session)
        session.rollback()
        queue.send(b"kept", address="a", transaction=session)
        session.commit()
    assert [one.payload for one in queue.receive(limit=10)] == [b"kept"]
