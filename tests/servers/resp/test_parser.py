"""From bytes to commands: what is a command, what is not, and what a claim may cost."""

from __future__ import annotations

import tracemalloc

import pytest

from penstock.servers.resp.parser import Command, Parser
from penstock.settings import Limits
from tests.servers.resp.client import frame

SMALL = Limits(arguments=8, bulk_bytes=100, request_bytes=150, inline_bytes=40)


def parser(limits: Limits = SMALL, known: bool = True) -> Parser:
    made = Parser(limits)
    made.trust(known)
    return made


def byte_by_byte(data: bytes, made: Parser) -> list[Command]:
    return [command for byte in data for command in made.feed(bytes([byte]))]


@pytest.mark.parametrize(
    ("data", "commands"),
    [
        (frame("PING"), [[b"PING"]]),
        (frame("A", b"\r\n\x00\xff", ""), [[b"A", b"\r\n\x00\xff", b""]]),
        (frame("A") + frame("B", "c"), [[b"A"], [b"B", b"c"]]),
        (b"PING\r\n", [[b"PING"]]),
        (b"PING\n", [[b"PING"]]),
        (b"  set  a   b \r\n", [[b"set", b"a", b"b"]]),
        (b'echo "a\\x00\\n\\"b" \'it\\\'s\' ""\r\n', [[b"echo", b'a\x00\n"b', b"it's", b""]]),
        (b"\r\n\r\nPING\r\n", [[b"PING"]]),
        (b"*0\r\n*-1\r\n*-5\r\n" + frame("PING"), [[b"PING"]]),
        (frame("A") + b"PING\r\n" + frame("B") + b"*0\r\n" + frame("C"), [[b"A"], [b"PING"], [b"B"], [b"C"]]),
    ],
)
def test_commands_come_out_in_order(data: bytes, commands: list[Command]) -> None:
    at_once, slowly = parser(), parser()
    assert at_once.feed(data) == commands
    assert byte_by_byte(data, slowly) == commands
    assert at_once.error is slowly.error is None
    assert not at_once.is_midway


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"*9\r\n", "invalid multibulk length"),
        (b"*2147483648\r\n", "invalid multibulk length"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"*01\r\n", "invalid multibulk length"),
        (b"*-0\r\n", "invalid multibulk length"),
        (b"*" + b"1" * 40, "invalid multibulk length"),
        (b"*1\r\n$101\r\n", "invalid bulk length"),
        (b"*1\r\n$9223372036854775807\r\n", "invalid bulk length"),
        (b"*1\r\n$-10\r\n", "invalid bulk length"),
        (b"*1\r\n$blabla\r\n", "invalid bulk length"),
        (b"*1\r\n$+4\r\n", "invalid bulk length"),
        (b"*1\r\n$1_0\r\n", "invalid bulk length"),
        (b"*1\r\n$04\r\nPING\r\n", "invalid bulk length"),
        (b"*1\r\n$" + b"1" * 40, "invalid bulk length"),
        (b"*2\r\n$100\r\n" + b"x" * 100 + b"\r\n$100\r\n", "too big a request"),
        (b"*1\r\nfoo\r\n", "expected '$', got 'f'"),
        (b"*1\r\n*1\r\n$1\r\nx\r\n", "expected '$', got '*'"),
        (b"*1\r\n\x00", "expected '$', got byte 0"),
        (b"*1\r\n$4\r\nPINGxx", "end of a line"),
        (b"x" * 41, "too big inline request"),
        (b"x" * 41 + b"\r\n", "too big inline request"),
        (b'echo "a\r\n', "unbalanced quotes"),
        (b'echo "a"b\r\n', "unbalanced quotes"),
        (b"a b c d e f g h i\r\n", "too many arguments"),
        (b"POST / HTTP/1.1\r\n", "HTTP"),
        (b"Host: example\r\n", "HTTP"),
    ],
)
def test_what_is_no_command_ends_the_conversation(data: bytes, told: str) -> None:
    for made, feed in ((parser(), Parser.feed), (parser(), lambda made, data: byte_by_byte(data, made))):
        assert feed(made, frame("PING") + data) == [[b"PING"]], "what came before it counts"
        assert told in str(made.error)
        assert made.feed(frame("PING")) == [], "nothing after it can be trusted"


def test_strangers_may_send_less() -> None:
    limits = Limits(unauthenticated_arguments=2, unauthenticated_bulk_bytes=10)
    for data, told in (
        (b"*3\r\n", "unauthenticated multibulk length"),
        (b"*1\r\n$11\r\n", "unauthenticated bulk length"),
    ):
        stranger = parser(limits, known=False)
        stranger.feed(data)
        assert told in str(stranger.error)
        known = parser(limits)
        known.feed(data)
        assert known.error is None


def test_a_claim_costs_nothing_until_its_bytes_come() -> None:
    limits = Limits(bulk_bytes=1 << 30, request_bytes=1 << 31, arguments=1 << 20)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    claims = []
    for _ in range(100):
        made = parser(limits)
        made.feed(b"*1000000\r\n$1000000000\r\n")
        assert made.error is None
        assert made.is_midway
        claims.append(made)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 100 * 4096


def test_a_large_argument_arrives_in_pieces() -> None:
    made = parser(Limits())
    contents = bytes(range(256)) * 4096
    data = frame("QADD", contents)
    commands = [command for at in range(0, len(data), 65536) for command in made.feed(data[at : at + 65536])]
    assert commands == [[b"QADD", contents]]
