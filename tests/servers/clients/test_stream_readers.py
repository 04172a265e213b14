"""Readers that follow a stream by ids miss nothing, however late a transaction commits; removed groups stay removed.

Each test has two servers on one store.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.engines.postgres.server import fresh_database
from tests.servers.clients.processes import PenstockServer
from tests.servers.clients.queue_status import until
from tests.servers.clients.wire import Wire, frame

Pair = tuple[Wire, Wire]
ROUNDS = 60


@pytest.fixture(scope="module")
def url() -> str:
    return fresh_database()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, url: str) -> Iterator[tuple[PenstockServer, PenstockServer]]:
    folder = tmp_path_factory.mktemp("servers")
    with PenstockServer(folder / "one", url=url) as one, PenstockServer(folder / "two", url=url) as two:
        yield one.start(), two.start()


@pytest.fixture
def wires(servers: tuple[PenstockServer, PenstockServer]) -> Iterator[Pair]:
    with Wire(servers[0].port) as one, Wire(servers[1].port) as two:
        yield one, two


@pytest.fixture
def late(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A client of the database whose transaction ends when the test says so."""
    with psycopg.connect(url) as connection:
        yield connection


def send(connection: psycopg.Connection[Any], queue: str, payload: str = "1") -> None:
    connection.execute("select penstock.send(%s, %s::jsonb)", (queue, payload))


def read(wire: Wire, queue: str, after: bytes | str = "0") -> list[bytes]:
    """Ids of what comes after one."""
    found = wire.call("XREAD", "STREAMS", queue, after)
    return [] if found is None else [entry[0] for entry in found[0][1]]


def ids(wire: Wire, command: str, *words: str) -> list[bytes]:
    return [entry[0] for entry in wire.call(command, *words)]


def test_nothing_is_read_beyond_a_transaction_that_may_still_commit(wires: Pair, late: psycopg.Connection[Any]) -> None:
    one, _ = wires
    first = one.call("XADD", "late", "*", "n", "1")
    send(late, "late")
    second = one.call("XADD", "late", "*", "n", "2")
    for wire in wires:
        assert read(wire, "late") == [first]
        assert ids(wire, "XRANGE", "late", "-", "+") == [first]
        assert ids(wire, "XREVRANGE", "late", "+", "-", "COUNT", "1") == [first]
    assert one.call("XLEN", "late") == 2
    late.commit()
    for wire in wires:
        [between, last] = read(wire, "late", first)
        assert last == second
        assert ids(wire, "XRANGE", "late", "-", "+") == [first, between, second]


def test_a_reader_of_what_is_to_come_gets_what_commits_late(wires: Pair, late: psycopg.Connection[Any]) -> None:
    one, two = wires
    one.call("XADD", "news", "*", "n", "1")
    send(late, "news")
    second = one.call("XADD", "news", "*", "n", "2")
    two.send(frame("XREAD", "BLOCK", "0", "STREAMS", "news", "$"))
    _until_waits(two)
    late.commit()
    [[_, entries]] = two.read().plain
    assert [entry[1] for entry in entries] == [[b"payload", b"1"], [b"n", b"2"]]
    assert entries[-1][0] == second


def test_a_blocked_reader_goes_on_when_the_transaction_before_it_is_rolled_back(
    wires: Pair, late: psycopg.Connection[Any]
) -> None:
    one, two = wires
    first = one.call("XADD", "undone", "*", "n", "1")
    send(late, "undone")
    second = one.call("XADD", "undone", "*", "n", "2")
    two.send(frame("XREAD", "BLOCK", "0", "STREAMS", "undone", first))
    _until_waits(two)
    late.rollback()
    assert two.read().plain == [[b"undone", [[second, [b"n", b"2"]]]]]


def _until_waits(wire: Wire) -> None:
    """Until the server of a connection says that a client of it is blocked."""
    with Wire(wire.socket.getpeername()[1]) as other:
        until(lambda: b"blocked_clients:0" not in other.call("INFO", "clients"))


@pytest.mark.parametrize("statement", ["send elsewhere", "write elsewhere", "nothing"])
def test_who_does_not_send_to_the_stream_holds_nobody_back(
    statement: str, wires: Pair, late: psycopg.Connection[Any]
) -> None:
    one, two = wires
    queue = f"free of {statement}"
    first = one.call("XADD", queue, "*", "n", "1")
    if statement == "send elsewhere":
        send(late, "elsewhere")
    elif statement == "write elsewhere":
        late.execute("create temporary table mine as select 1")
    else:
        late.execute("select 1")
    second = one.call("XADD", queue, "*", "n", "2")
    assert read(two, queue) == [first, second]
    late.rollback()


def test_a_transaction_that_sends_to_many_queues_holds_back_each_of_them(
    wires: Pair, late: psycopg.Connection[Any]
) -> None:
    """And needs few locks of the server for it."""
    one, two = wires
    first = [one.call("XADD", f"many {number}", "*", "n", "1") for number in range(200)][-1]
    for number in range(200):
        send(late, f"many {number}")
    second = one.call("XADD", "many 199", "*", "n", "2")
    assert read(two, "many 199") == [first]
    count = late.execute("select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()")
    assert count.fetchone()[0] < 100  # type: ignore[index]
    late.commit()
    assert read(two, "many 199", first)[-1] == second


def test_a_send_undone_by_a_savepoint_holds_nobody_back(wires: Pair, late: psycopg.Connection[Any]) -> None:
    one, two = wires
    late.execute("select 1")
    with late.transaction(force_rollback=True):
        send(late, "savepoint")
    second = one.call("XADD", "savepoint", "*", "n", "2")
    assert read(two, "savepoint") == [second]
    send(late, "savepoint")
    third = one.call("XADD", "savepoint", "*", "n", "3")
    assert read(two, "savepoint", second) == []
    late.rollback()
    assert read(two, "savepoint", second) == [third]


def test_a_follower_misses_nothing_of_what_two_servers_write(
    servers: tuple[PenstockServer, PenstockServer],
) -> None:
    added: list[bytes] = []

    def write(port: int) -> None:
        with Wire(port) as wire:
            for number in range(ROUNDS):
                several = 1 + number % 7
                size = 10 if number % 9 else 100_000
                wire.send(frame("XADD", "busy", "*", "n", "x" * size) * several)
                added.extend([wire.read().plain for _ in range(several)])

    writers = [threading.Thread(target=write, args=(servers[number % 2].port,)) for number in range(8)]
    seen: list[bytes] = []
    with Wire(servers[1].port) as reader:
        for writer in writers:
            writer.start()
        while any(writer.is_alive() for writer in writers):
            found = reader.call("XREAD", "COUNT", 1000, "BLOCK", 50, "STREAMS", "busy", seen[-1] if seen else "0")
            seen += [] if found is None else [entry[0] for entry in found[0][1]]
        while more := read(reader, "busy", seen[-1] if seen else "0"):
            seen += more
    assert sorted(added, key=_order) == seen


def _order(name: bytes) -> int:
    return int(name.split(b"-")[1])


# -- groups ------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["postgres", "sqlite"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """Two servers on a store of each engine."""
    if request.param == "postgres":
        yield request.getfixturevalue("wires")
        return
    shared = f"sqlite:///{tmp_path / 'shared.db'}"
    with PenstockServer(tmp_path / "one", url=shared) as one, PenstockServer(tmp_path / "two", url=shared) as two:
        with Wire(one.start().port) as first, Wire(two.start().port) as second:
            yield first, second


def test_a_group_that_another_server_removed_is_not_made_again_by_reading(both: Pair) -> None:
    one, two = both
    one.call("XADD", "removed", "*", "n", "1")
    one.call("XGROUP", "CREATE", "removed", "g", "$")
    reading = ("XREADGROUP", "GROUP", "g", "c", "COUNT", 10, "STREAMS", "removed", ">")
    assert two.call(*reading) is None
    assert one.call("XGROUP", "DESTROY", "removed", "g") == 1
    assert two.error(*reading).startswith("NOGROUP No such key 'removed' or consumer group 'g'")
    assert two.error(*reading[:-1], "0").startswith("NOGROUP")
    assert two.error(*reading[:-3], "NOACK", *reading[-3:]).startswith("NOGROUP")
    assert one.call("XINFO", "GROUPS", "removed") == []


def test_blocked_readers_hear_that_their_group_was_removed(both: Pair) -> None:
    one, two = both
    one.call("XGROUP", "CREATE", "blocked", "g", "$", "MKSTREAM")
    two.send(frame("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "blocked", ">"))
    _until_waits(two)
    assert one.call("XGROUP", "DESTROY", "blocked", "g") == 1
    assert two.read().value.startswith(b"NOGROUP")
    one.call("XADD", "blocked", "*", "n", "1")
    assert one.call("XINFO", "GROUPS", "blocked") == []
