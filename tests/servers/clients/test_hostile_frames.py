"""Frames that lie, clients that never read or never finish: each costs little, and nobody else notices.

The names in brackets are those of the security checklist.
"""

from __future__ import annotations

import contextlib
import socket

import pytest

from tests.ports import LOOPBACK
from tests.servers.clients.processes import PenstockServer
from tests.servers.clients.wire import Wire, frame

BROKEN = {
    "count beyond 32 bits": b"*2147483648\r\n",
    "twenty million arguments": b"*20000000\r\n",
    "count that is no number": b"*abc\r\n",
    "count with a leading zero": b"*01\r\n$4\r\nPING\r\n",
    "endless count": b"*" + b"1" * 100,
    "length beyond 64 bits": b"*1\r\n$9223372036854775808\r\n",
    "largest length": b"*1\r\n$9223372036854775807\r\n",
    "two gigabytes": b"*1\r\n$2000000000\r\n",
    "negative length": b"*1\r\n$-10\r\n",
    "length that is no number": b"*1\r\n$blabla\r\n",
    "length with a leading zero": b"*1\r\n$04\r\nPING\r\n",
    "no end of line after the bulk": b"*1\r\n$4\r\nPINGxx*1\r\n",
    "an argument without a header": b"*1\r\nfoo\r\n",
    "a reply type as an argument": b"*1\r\n:5\r\n",
    "nested": b"*1\r\n*1\r\n$4\r\nPING\r\n",
    "unbalanced quotes": b'PING "hello\r\n',
    "an endless line": b"a" * (70 << 10),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_broken_frames_get_an_error_and_the_end(data: bytes, shared_server: PenstockServer) -> None:
    """[S05]"""
    with Wire(shared_server.port) as wire:
        wire.send(frame("ECHO", "before") + data)
        assert wire.read().plain == b"before"
        assert wire.read_until_closed().startswith(b"-ERR Protocol error")
    with Wire(shared_server.port) as wire:
        assert wire.call("PING") == b"PONG"


@pytest.mark.parametrize(
    ("head", "error"),
    [(b"*1\r\n$20000000\r\n", b"invalid bulk length"), (b"", b"too big inline request")],
    ids=["bulk", "inline"],
)
def test_who_sends_too_much_can_read_why(head: bytes, error: bytes, shared_server: PenstockServer) -> None:
    """Also a client that reads nothing before everything is sent."""
    with Wire(shared_server.port) as wire:
        wire.send(head + b"a" * 20_000_000 + b"\r\n")
        assert wire.read_until_closed() == b"-ERR Protocol error: " + error + b"\r\n"


def test_who_sends_on_after_a_protocol_error_is_cut_off(shared_server: PenstockServer) -> None:
    with Wire(shared_server.port) as wire, pytest.raises((ConnectionResetError, BrokenPipeError)):
        wire.send(b"a" * (1 << 30))


@pytest.mark.parametrize("data", [b"\r\n", b"\n\n\n", b"*0\r\n", b"*-1\r\n", b"*-5\r\n"], ids=repr)
def test_what_says_nothing_is_answered_with_nothing(data: bytes, shared_server: PenstockServer) -> None:
    with Wire(shared_server.port) as wire:
        wire.send(data + b"PING\r\n")
        assert wire.read().plain == b"PONG"


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (b"ECHO hello\r\n", b"hello"),
        (b"echo hello\n", b"hello"),
        (b'  ECHO   "a b\\x00\\n\\"c"  \r\n', b'a b\x00\n"c'),
        (b"ECHO 'it\\'s'\r\n", b"it's"),
        (b'ECHO ""\r\n', b""),
    ],
    ids=repr,
)
def test_lines_typed_by_hand(line: bytes, answer: bytes, shared_server: PenstockServer) -> None:
    with Wire(shared_server.port) as wire:
        wire.send(line)
        assert wire.read().plain == answer


def test_a_claim_costs_nothing(server: PenstockServer) -> None:
    """[S06] Memory grows with what arrives, not with what is announced."""
    with Wire(server.port) as wire, contextlib.ExitStack() as others:
        wire.call("PING")
        before = server.rss_bytes()
        for _ in range(200):
            liar = others.enter_context(Wire(server.port))
            liar.send(b"*3\r\n$4\r\nQADD\r\n$1\r\nq\r\n$15000000\r\nabc")
        assert wire.call("PING") == b"PONG"
        assert server.rss_bytes() - before < 20 << 20


def test_a_request_has_a_largest_size(shared_server: PenstockServer) -> None:
    """[S07] Also when it comes in many small arguments."""
    with Wire(shared_server.port) as wire:
        half = b"$1048576\r\n" + bytes(1 << 20) + b"\r\n"
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            wire.send(b"*64\r\n")
            for _ in range(64):
                wire.send(half)
        assert wire.read_until_closed().startswith((b"-ERR Protocol error", b""))
    with Wire(shared_server.port) as wire:
        assert wire.call("PING") == b"PONG"


def test_a_payload_too_large_for_the_queue_is_refused_and_the_connection_lives(shared_server: PenstockServer) -> None:
    with Wire(shared_server.port) as wire:
        assert wire.call("QADD", "large", 60, bytes(16 << 20)) is not None
        assert "16777217" in wire.error("QADD", "large", 60, bytes((16 << 20) + 1)).replace(",", "").replace("_", "")
        assert wire.call("PING") == b"PONG"


def test_who_never_reads_is_not_waited_for(server: PenstockServer) -> None:
    """[S08] Replies pile up in the socket, not in the server, and others are served meanwhile."""
    with socket.create_connection((LOOPBACK, server.port)) as deaf, Wire(server.port) as wire:
        wire.call("PING")
        before = server.rss_bytes()
        deaf.settimeout(1.0)
        echo = frame("ECHO", bytes(64 << 10))
        sent = 0
        with contextlib.suppress(TimeoutError, ConnectionError):
            for _ in range(10_000):
                deaf.sendall(echo)
                sent += 1
        assert 10 < sent < 10_000, "the server read on although nobody took the replies"
        for number in range(100):
            assert wire.call("ECHO", number) == b"%d" % number
        assert server.rss_bytes() - before < 100 << 20


def test_ten_thousand_pipelined_commands_are_answered_in_order(shared_server: PenstockServer) -> None:
    """[S19] With errors between them."""
    with Wire(shared_server.port, timeout_seconds=60) as wire:
        commands = []
        for number in range(10_000):
            match number % 5:
                case 0 | 1:
                    commands.append(frame("ECHO", number))
                case 2:
                    commands.append(frame("NOSUCH", number))
                case 3:
                    commands.append(frame("QADD", "many"))
                case _:
                    commands.append(frame("QADD", "many", 60, number) if number % 100 == 4 else frame("PING", number))
        data = b"".join(commands)
        for start in range(0, len(data), 1 << 16):
            wire.send(data[start : start + (1 << 16)])
        for number in range(10_000):
            reply = wire.read()
            match number % 5:
                case 0 | 1:
                    assert reply.plain == b"%d" % number
                case 2:
                    assert reply.kind == "-"
                    assert f"'{number}'" in reply.value.decode().replace("`", "'")
                case 3:
                    assert reply.kind == "-"
                    assert b"wrong number of arguments" in reply.value
                case _:
                    assert reply.kind == "$"
                    assert number % 100 == 4 or reply.value == b"%d" % number
        assert wire.call("PING") == b"PONG"


def test_sends_gets_and_acks_in_one_pipeline_see_each_other(shared_server: PenstockServer) -> None:
    with Wire(shared_server.port) as wire:
        wire.send(
            b"".join(frame("QADD", "turns", 60, number) + frame("QGET", "turns", "g", "EX", 0) for number in range(200))
        )
        for number in range(200):
            id = wire.read().plain
            assert wire.read().plain == [id, b"%d" % number]


@pytest.mark.parametrize(
    "words",
    [
        ["EVAL", "return 1", "0"],
        ["EVALSHA", "x", "0"],
        ["SCRIPT", "LOAD", "x"],
        ["FUNCTION", "LIST"],
        ["DEBUG", "SLEEP", "0"],
        ["CONFIG", "SET", "dir", "/"],
        ["MODULE", "LOAD", "x"],
        ["SHUTDOWN"],
        ["SLAVEOF", "h", "1"],
        ["REPLICAOF", "h", "1"],
        ["MIGRATE", "h", "1", "k", "0", "1"],
        ["SAVE"],
        ["FLUSHALL"],
        ["SET", "k", "value"],
        ["WATCH", "k"],
        ["CLIENT", "TRACKING", "on"],
        ["CLIENT", "MAINT_NOTIFICATIONS", "ON"],
    ],
    ids=" ".join,
)
def test_what_is_not_a_queue_is_not_there(words: list[str], shared_server: PenstockServer) -> None:
    """[S20]"""
    with Wire(shared_server.port) as wire:
        # Clients know by NOSCRIPT that a script is not there.
        assert wire.error(*words).startswith("NOSCRIPT" if words[0] == "EVALSHA" else "ERR")
        assert wire.call("PING") == b"PONG"


def test_an_unknown_command_is_told_back_short_and_harmless(shared_server: PenstockServer) -> None:
    """[S20]"""
    with Wire(shared_server.port) as wire:
        for words in (
            [b"A" * 10_000, b"B" * 10_000],
            [b"FOO\r\n+OK\r\n", b"\x00\xff\r\n:1"],
            [b"", b""],
            [b"XGROUP", b"A\r\n" * 999],
        ):
            assert len(wire.error(*words)) < 1000
        for words in ([b"QADD", b"q\r\n+OK", b"x\r\n+OK", b"\r\n"], [b"XADD", b"s", b"\r\n+OK", b"a", b"b"]):
            wire.error(*words)
        assert wire.call("ECHO", "in step") == b"in step"


def test_what_waits_behind_a_blocked_command_is_bounded(server: PenstockServer) -> None:
    """[S08] Bytes count, not only commands."""
    with socket.create_connection((LOOPBACK, server.port)) as greedy, Wire(server.port) as wire:
        before = server.rss_bytes()
        greedy.settimeout(1.0)
        greedy.sendall(frame("QNOTIFY", "g", 60, "nothing-here"))
        large = frame("ECHO", bytes(1 << 20))
        with contextlib.suppress(TimeoutError, ConnectionError):
            for _ in range(300):
                greedy.sendall(large)
        assert wire.call("PING") == b"PONG"
        assert server.rss_bytes() - before < 100 << 20
