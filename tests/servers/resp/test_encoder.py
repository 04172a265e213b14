"""From replies to bytes, in both versions of the protocol."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import State
from penstock.servers.resp.encoder import NO_ARRAY, OK, Pairs, Tags, Verbatim, encode
from penstock.servers.resp.errors import CommandError


@pytest.mark.parametrize(
    ("reply", "two", "three"),
    [
        (None, b"$-1\r\n", b"_\r\n"),
        (NO_ARRAY, b"*-1\r\n", b"_\r\n"),
        (OK, b"+OK\r\n", b"+OK\r\n"),
        (7, b":7\r\n", b":7\r\n"),
        (True, b":1\r\n", b"#t\r\n"),
        (False, b":0\r\n", b"#f\r\n"),
        (0.5, b"$3\r\n0.5\r\n", b",0.5\r\n"),
        ("é", b"$2\r\n\xc3\xa9\r\n", b"$2\r\n\xc3\xa9\r\n"),
        (b"\r\n\x00", b"$3\r\n\r\n\x00\r\n", b"$3\r\n\r\n\x00\r\n"),
        ([1, [b"a", None]], b"*2\r\n:1\r\n*2\r\n$1\r\na\r\n$-1\r\n", b"*2\r\n:1\r\n*2\r\n$1\r\na\r\n_\r\n"),
        ({"a": 1}, b"*2\r\n$1\r\na\r\n:1\r\n", b"%1\r\n$1\r\na\r\n:1\r\n"),
        ({}, b"*0\r\n", b"%0\r\n"),
        ({"b", "a"}, b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", b"~2\r\n$1\r\na\r\n$1\r\nb\r\n"),
        (Pairs([("s", [1])]), b"*1\r\n*2\r\n$1\r\ns\r\n*1\r\n:1\r\n", b"%1\r\n$1\r\ns\r\n*1\r\n:1\r\n"),
        (Tags("optional"), b"*1\r\n+optional\r\n", b"~1\r\n+optional\r\n"),
        (Verbatim("a\r\n"), b"$3\r\na\r\n\r\n", b"=7\r\ntxt:a\r\n\r\n"),
        (CommandError("ERR a\r\n+OK"), b"-ERR a  +OK\r\n", b"-ERR a  +OK\r\n"),
        (State.READY, b"$5\r\nready\r\n", b"$5\r\nready\r\n"),
    ],
)
def test_every_kind_of_reply(reply: Any, two: bytes, three: bytes) -> None:
    assert encode(reply, 2) == two
    assert encode(reply, 3) == three


def test_what_is_no_reply_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        encode([object()], 2)
