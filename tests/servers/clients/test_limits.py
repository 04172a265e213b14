"""Who may connect, how often, and how much of the server one client may use.

The names in brackets are those of the security checklist.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.ports import LOOPBACK
from tests.servers.clients.client_programs import SPEAKERS
from tests.servers.clients.processes import PenstockServer
from tests.servers.clients.queue_status import until
from tests.servers.clients.wire import Closed, Wire, frame

PASSWORD = "open-sesame-7"


@contextlib.contextmanager
def serving(folder: Path, **settings: str | float) -> Iterator[PenstockServer]:
    """A server with these settings, given through the environment."""
    environment = {f"PENSTOCK_RESP_{name.upper()}": str(value) for name, value in settings.items()}
    with PenstockServer(folder, environment=environment) as server:
        yield server.start()


# -- who ---------------------------------------------------------------------------------------------------------------


def test_it_listens_on_loopback_only_unless_told_otherwise(server: PenstockServer) -> None:
    """[S01]"""
    address = _own_address()
    with pytest.raises(OSError):
        socket.create_connection((address, server.port), timeout=60)


def test_strangers_from_outside_are_refused_without_a_password(tmp_path: Path) -> None:
    """[S01, S02] Who connects counts, not which address listens."""
    address = _own_address()
    with serving(tmp_path, host="0.0.0.0") as server:
        with socket.create_connection((address, server.port), timeout=60) as stranger:
            stranger.settimeout(5)
            answer = stranger.recv(1000)
            assert answer.startswith(b"-DENIED"), answer
            assert b"password" in answer
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1000) == b""
        with Wire(server.port) as wire:
            assert wire.call("PING") == b"PONG"


def _own_address() -> str:
    """An address of this machine that is not loopback. Connecting a datagram socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        address: str = probe.getsockname()[0]
    if address.startswith("127."):
        pytest.skip("this machine has no address but loopback")
    return address


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockServer]:
    """A server with a password."""
    with serving(tmp_path_factory.mktemp("locked"), password=PASSWORD, handshake_seconds=3) as server:
        yield server


COMMANDS = [
    ["QADD", "q", "60", "x"],
    ["QGET", "q", "g"],
    ["QSTATUS"],
    ["QNOTIFY", "g", "1", "q"],
    ["XADD", "s", "*", "a", "b"],
    ["XRANGE", "s", "-", "+"],
    ["MULTI"],
    ["EXEC"],
    ["INFO"],
    ["COMMAND"],
    ["COMMAND", "DOCS"],
    ["CLIENT", "LIST"],
    ["CLIENT", "SETNAME", "x"],
    ["SELECT", "0"],
    ["ECHO", "x"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_nothing_works_before_authentication(words: list[str], locked: PenstockServer) -> None:
    """[S03]"""
    with Wire(locked.port) as wire:
        assert wire.error(*words).startswith("NOAUTH")
        assert wire.call("AUTH", PASSWORD) == b"OK"
        assert wire.ask("PING").plain == b"PONG"


def test_every_way_to_authenticate(locked: PenstockServer) -> None:
    with Wire(locked.port) as wire:
        assert wire.call("AUTH", "default", PASSWORD) == b"OK"
    with Wire(locked.port) as wire:
        assert wire.ask("HELLO", 3, "AUTH", "default", PASSWORD, "SETNAME", "me").kind == "%"
        assert wire.call("CLIENT", "GETNAME") == b"me"
        assert wire.call("RESET") == b"RESET"
        assert wire.error("QSTATUS").startswith("NOAUTH")
    with Wire(locked.port) as wire:
        assert wire.error("HELLO", 3).startswith("NOAUTH")
        assert wire.error("HELLO", 3, "AUTH", "default", "wrong").startswith("WRONGPASS")
        assert wire.error("AUTH", "nobody", PASSWORD).startswith("WRONGPASS")
        assert wire.error("QSTATUS").startswith("NOAUTH")


@pytest.mark.parametrize("client", SPEAKERS)
def test_real_clients_authenticate(client: str, locked: PenstockServer) -> None:
    with SPEAKERS[client](locked.port, PASSWORD) as speaker:
        id = speaker("QADD", "orders", 60, client)
        assert speaker("QGET", "orders", client, "EX", 0)[0] is not None
        assert isinstance(id, str)


@pytest.mark.parametrize("data", [b"*11\r\n", b"*1\r\n$16385\r\n", b"*2\r\n$4\r\nAUTH\r\n$16385\r\n"], ids=repr)
def test_strangers_may_ask_little(data: bytes, locked: PenstockServer) -> None:
    """[S04]"""
    with Wire(locked.port) as wire:
        wire.send(data)
        assert wire.read_until_closed().startswith(b"-ERR Protocol error: unauthenticated")


def test_a_thousand_greedy_strangers_cost_nothing(tmp_path: Path) -> None:
    """[S04] On a server of its own, which has met four thousand already: until then its arenas grow in steps."""
    with serving(tmp_path, password=PASSWORD) as server:

        def meet(number: int) -> None:
            for _ in range(number):
                with Wire(server.port) as wire:
                    wire.send(b"*1\r\n$16385\r\n" + bytes(1000))
                    wire.read_until_closed()

        meet(4000)
        before = server.rss_bytes()
        meet(1000)
        assert server.rss_bytes() - before < 1 << 20


def test_strangers_that_never_read_are_cut_off(locked: PenstockServer) -> None:
    """[S08] Before authentication as well."""
    with socket.create_connection((LOOPBACK, locked.port)) as deaf:
        deaf.settimeout(20)
        assert _is_cut_off(deaf, [b"NOSUCH\r\n" * 1000] * 10_000)
    with Wire(locked.port) as wire:
        assert wire.call("AUTH", PASSWORD) == b"OK"


def test_strangers_must_say_who_they_are_in_time(locked: PenstockServer) -> None:
    """[S09] Also those who send a byte now and then."""
    silent = [Wire(locked.port) for _ in range(100)]
    with Wire(locked.port) as slow, Wire(locked.port) as wire:
        assert wire.call("AUTH", PASSWORD) == b"OK"
        assert wire.call("PING") == b"PONG"
        assert _is_cut_off(slow.socket, _dribbled(b"*2\r\n$4\r\nAUTH\r\n$100\r\n" + b"x" * 100))
        for one in silent:
            one.read_until_closed()
            one.close()
        assert wire.call("PING") == b"PONG"


def _is_cut_off(link: socket.socket, pieces: Iterable[bytes]) -> bool:
    """Whether the server hangs up before all is sent."""
    try:
        for piece in pieces:
            link.sendall(piece)
    except ConnectionError:
        return True
    return False


def _dribbled(data: bytes) -> Iterator[bytes]:
    for byte in data:
        yield bytes([byte])
        time.sleep(0.1)  # the slowness is what is tested


def test_failed_logins_are_rate_limited(tmp_path: Path) -> None:
    """[S11] And those who know the password are not kept out by those who guess."""
    with serving(tmp_path, password=PASSWORD, failed_logins_per_second=5) as server:
        with Wire(server.port) as friend:
            assert friend.call("AUTH", PASSWORD) == b"OK"
        answers = []
        with Wire(server.port, timeout_seconds=60) as wire:
            for number in range(40):
                answers.append(wire.error("AUTH", f"guess-{number}"))
            refused = [answer for answer in answers if not answer.startswith("WRONGPASS")]
            assert refused, "forty guesses in a row were all tried"
            assert all("too many" in answer for answer in refused)
            assert wire.call("AUTH", PASSWORD) == b"OK"


# -- how much ----------------------------------------------------------------------------------------------------------


def test_there_are_only_so_many_clients(tmp_path: Path) -> None:
    """[S10]"""
    with serving(tmp_path, clients=5) as server:
        inside = [Wire(server.port) for _ in range(5)]
        for wire in inside:
            assert wire.call("PING") == b"PONG"
        with Wire(server.port) as refused:
            assert refused.read_until_closed().startswith(b"-ERR max number of clients reached")
        inside.pop().close()
        until(lambda: _answers(server.port))
        for wire in inside:
            assert wire.call("PING") == b"PONG"
            wire.close()


def test_one_address_gets_only_so_many_clients(tmp_path: Path) -> None:
    """[S10]"""
    with serving(tmp_path, clients_per_address=3) as server:
        inside = [Wire(server.port) for _ in range(3)]
        for wire in inside:
            assert wire.call("PING") == b"PONG"
        with Wire(server.port) as refused:
            assert refused.read_until_closed().startswith(b"-ERR max number of clients")
        for wire in inside:
            wire.close()


def _answers(port: int) -> bool:
    with Wire(port) as wire:
        try:
            return bool(wire.ask("PING").kind == "+")
        except Closed:
            return False


def test_sizes_are_settings(tmp_path: Path) -> None:
    """[S07]"""
    with serving(tmp_path, arguments=20, bulk_bytes=1000, request_bytes=5000, inline_bytes=100) as server:
        for data in (
            b"*21\r\n",
            b"*1\r\n$1001\r\n",
            b"*20\r\n" + (b"$900\r\n" + bytes(900) + b"\r\n") * 7,
            b"ECHO " + b"x" * 200 + b"\r\n",
        ):
            with Wire(server.port) as wire:
                wire.send(data)
                assert wire.read_until_closed().startswith(b"-ERR Protocol error")
        with Wire(server.port) as wire:
            assert wire.call("ECHO", "x" * 1000) == b"x" * 1000


def test_who_never_finishes_a_command_is_cut_off(tmp_path: Path) -> None:
    """[S09] Byte by byte, at a pace that is never quite silent."""
    with serving(tmp_path, request_seconds=1) as server:
        with Wire(server.port) as slow, Wire(server.port) as wire:
            assert slow.call("PING") == b"PONG"
            assert _is_cut_off(slow.socket, _dribbled(b"*2\r\n$4\r\nECHO\r\n$200\r\n" + b"x" * 100))
            assert wire.call("PING") == b"PONG"


def test_who_says_nothing_is_cut_off_where_that_is_wanted(tmp_path: Path) -> None:
    """[S09] Waiting for a message is not idling."""
    with serving(tmp_path, idle_seconds=1) as server:
        with Wire(server.port) as idle, Wire(server.port) as waiting:
            idle.call("PING")
            waiting.send(frame("QNOTIFY", "g", 2.5, "q"))
            began = time.monotonic()
            assert idle.read_until_closed() == b""
            assert time.monotonic() - began < 60
            assert waiting.read().value is None


def test_background_sends_have_an_end(tmp_path: Path) -> None:
    """NOBLOCK says so when its pool is full; what it took arrives."""
    with serving(tmp_path, background_sends=50) as server, Wire(server.port) as wire:
        wire.send(frame("QADD", "q", 600, "x", "NOBLOCK") * 2000)
        replies = [wire.read() for _ in range(2000)]
        taken = sum(reply.kind == "+" for reply in replies)
        refused = [reply.value for reply in replies if reply.kind == "-"]
        assert taken + len(refused) == 2000
        assert refused, "the pool has no end"
        assert b"overload" in refused[0]

        def stored() -> int:
            wire.send(frame("QGET", "q", "g", "EX", 0) * 100)
            return sum(wire.read().value is not None for _ in range(100))

        found = 0
        while got := stored():
            found += got
        assert found == taken


def test_a_port_that_is_taken_is_said_plainly(server: PenstockServer, tmp_path: Path) -> None:
    other = PenstockServer(tmp_path / "other", port=server.port)
    with pytest.raises(AssertionError, match="ended while starting"):
        other.start(answers=lambda: False)  # the first server would answer in its place
    assert str(server.port) in other.said()
    assert "Traceback" not in other.said()
