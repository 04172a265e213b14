"""Clients that wait: woken in turn, in order with what they sent before, and taking nothing with them when they go."""

from __future__ import annotations

import socket
import struct
import time

import pytest

from tests.servers.clients.client_programs import SPEAKERS
from tests.servers.clients.processes import PenstockServer
from tests.servers.clients.queue_status import blocked, counts, until
from tests.servers.clients.wire import Reply, Wire, frame

READ = ("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "BLOCK", 0, "STREAMS", "s", ">")


@pytest.fixture(autouse=True)
def stream(wire: Wire) -> None:
    wire.call("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")


def waiting_clients(wire: Wire, number: int) -> None:
    """Until the server says that so many clients are blocked."""

    def told() -> int:
        return int(wire.call("INFO", "clients").decode().partition("blocked_clients:")[2].split()[0])

    until(lambda: told() == number)


def test_each_message_wakes_one_reader_the_longest_waiting_first(server: PenstockServer, wire: Wire) -> None:
    readers = []
    for number in range(4):
        readers.append(Wire(server.port))
        readers[-1].send(frame(*READ))
        waiting_clients(wire, number + 1)
    added = [wire.call("XADD", "s", "*", "n", number) for number in range(4)]
    got = [reader.read().plain[0][1][0][0] for reader in readers]
    assert got == added
    for reader in readers:
        reader.close()


def test_what_comes_after_a_blocking_command_waits_for_it(server: PenstockServer, wire: Wire) -> None:
    with Wire(server.port) as reader:
        reader.send(frame("ECHO", "before") + frame(*READ) + frame("ECHO", "after") + frame("PING"))
        assert reader.read().plain == b"before"
        waiting_clients(wire, 1)
        wire.call("XADD", "s", "*", "a", "1")
        assert reader.read().plain[0][0] == b"s"
        assert [reader.read().plain, reader.read().plain] == [b"after", b"PONG"]


def test_nothing_blocks_inside_a_transaction(wire: Wire) -> None:
    assert wire.call("MULTI") == b"OK"
    assert wire.call(*READ) == b"QUEUED"
    assert wire.call("QNOTIFY", "g", 100, "s") == b"QUEUED"
    assert wire.call("EXEC") == [None, None]


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_wait_that_ends_with_nothing_is_null(protocol: int, server: PenstockServer) -> None:
    null = {2: Reply("*", None), 3: Reply("_", None)}[protocol]
    with Wire(server.port, protocol) as reader:
        began = time.monotonic()
        assert reader.ask("XREADGROUP", "GROUP", "g", "c", "BLOCK", 100, "STREAMS", "s", ">") == null
        assert 0.09 < time.monotonic() - began < 30
        assert reader.ask("QNOTIFY", "g", "0.1", "s").value is None


@pytest.mark.parametrize("farewell", ["closes", "resets"])
def test_a_reader_that_goes_away_takes_nothing_with_it(farewell: str, server: PenstockServer, wire: Wire) -> None:
    for number in range(20):
        reader = Wire(server.port)
        reader.send(frame(*READ))
        waiting_clients(wire, 1)
        if farewell == "resets":
            reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reader.close()
        # At once: the server may learn of both in the same breath.
        wire.call("XADD", "s", "*", "n", number)
        began = time.monotonic()
        ((_, ((_, fields),)),) = wire.call(
            "XREADGROUP", "GROUP", "g", "alive", "COUNT", 1, "BLOCK", 60_000, "STREAMS", "s", ">"
        )
        assert fields == [b"n", b"%d" % number]
        assert time.monotonic() - began < 30
    waiting_clients(wire, 0)


@pytest.mark.parametrize("client", ["redis-py 8 RESP3", "redis-py 7 RESP2", "ioredis"])
def test_a_client_killed_while_blocked_takes_nothing_with_it(client: str, server: PenstockServer, wire: Wire) -> None:
    with SPEAKERS[client](server.port) as reader:
        reader("PING")
        reader.say(*READ)
        waiting_clients(wire, 1)
        reader.kill()
        waiting_clients(wire, 0)
    added = wire.call("XADD", "s", "*", "a", "1")
    assert wire.call("XPENDING", "s", "g")[0] == 0
    assert wire.call("XREADGROUP", "GROUP", "g", "alive", "STREAMS", "s", ">")[0][1][0][0] == added


def test_two_clients_acknowledge_and_one_is_told_so(server: PenstockServer, wire: Wire) -> None:
    id = wire.call("QADD", "q", 60, "x")
    wire.call("QGET", "q", "g")
    with Wire(server.port) as other:
        both = frame("QACK", "q", "g", id)
        wire.send(both)
        other.send(both)
        assert sorted([wire.read().plain, other.read().plain]) == [0, 1]


def test_an_expired_lease_wakes_every_kind_of_waiting_client(server: PenstockServer, wire: Wire) -> None:
    wire.call("XADD", "s", "*", "a", "1")
    # Longer than it takes the client to be seen waiting, also on a busy machine.
    assert wire.call("QGET", "s", "g", "EX", "2") is not None
    with Wire(server.port) as notified, Wire(server.port) as reader:
        notified.send(frame("QNOTIFY", "g", 60, "s"))
        blocked(wire.call, "s", "g")
        began = time.monotonic()
        assert notified.read().plain == b"s"
        assert time.monotonic() - began < 30
        assert counts(wire.call, "s", "g")["redo"] == 1
        assert wire.call("QGET", "s", "g", "EX", "0.3") is not None
        reader.send(frame(*READ))
        assert reader.read().plain[0][1][0][1] == [b"a", b"1"]


def test_a_message_that_becomes_due_wakes_a_waiting_client(server: PenstockServer, wire: Wire) -> None:
    import penstock

    with penstock.connect(server.url) as store:
        store.queue("s").send(b"later", delay_seconds=0.3)
    began = time.monotonic()
    assert wire.call("QNOTIFY", "g", 60, "s") == b"s"
    assert 0.1 < time.monotonic() - began < 30


def test_stopping_lets_blocked_clients_go(server: PenstockServer, wire: Wire) -> None:
    readers = [Wire(server.port) for _ in range(5)]
    for reader in readers:
        reader.send(frame(*READ))
    waiting_clients(wire, 5)
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 30
    for reader in readers:
        reader.read_until_closed()
        reader.close()
