"""Encode replies in both versions of the protocol.

A reply is made of plain values: None, int, float, bool, str, bytes, lists, dicts, sets, exceptions for error replies,
and the few classes below for types that only the protocol has. RESP2 has no maps: a dict becomes a list of keys and
values there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from penstock.servers.resp.errors import error_text

Reply = Any


class Simple(msgspec.Struct, frozen=True):
    """A simple string such as OK."""

    text: str


class Verbatim(msgspec.Struct, frozen=True):
    """A verbatim string: text for people."""

    text: str


class Pairs(msgspec.Struct, frozen=True):
    """A map that is a list of pairs in RESP2, such as the reply of XREAD."""

    pairs: list[tuple[Any, Any]]


class Tags:
    """A set of words, each encoded as a simple string."""

    __slots__ = ("words",)

    def __init__(self, *words: str) -> None:
        self.words = words


class Encoded(bytes):
    """A reply in wire format."""


class Replies(list[Any]):
    """The replies to several commands that became one call."""


class Partial(msgspec.Struct, frozen=True):
    """Replies to the first of several commands; the others have to run again."""

    replies: Replies


class _NoArray:
    """A null array."""


NO_ARRAY = _NoArray()
OK = Simple("OK")
RESP2, RESP3 = 2, 3


def encode(reply: Reply, protocol: int) -> bytes:
    kind = type(reply)
    if kind is Replies:
        if len(reply) > 1:
            return _encode_each(reply, protocol)
        [reply] = reply
        kind = type(reply)
    if kind is Encoded:
        return cast(bytes, reply)
    if kind is str:
        data = reply.encode()
        return b"$%d\r\n%b\r\n" % (len(data), data)
    if kind is int:
        return b":%d\r\n" % reply
    if kind is list and len(reply) == 2 and type(reply[0]) is type(reply[1]) is bytes:
        return b"*2\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(reply[0]), reply[0], len(reply[1]), reply[1])
    if kind is list and set(map(type, reply)) == {bytes}:
        return b"*%d\r\n%b" % (len(reply), b"".join([b"$%d\r\n%b\r\n" % (len(one), one) for one in reply]))
    parts: list[bytes] = []
    _write(reply, protocol, parts.append)
    return b"".join(parts)


def _encode_each(replies: Replies, protocol: int) -> bytes:
    """Replies to joined commands, which mostly have one type: those are encoded without a call for each."""
    kinds = set(map(type, replies))
    if kinds == {int}:
        return b"".join([b":%d\r\n" % one for one in replies])
    if kinds == {str}:
        text = "".join([f"${len(one)}\r\n{one}\r\n" for one in replies])
        if text.isascii():
            return text.encode()
    return b"".join([encode(one, protocol) for one in replies])


Put = Callable[[bytes], None]


def _write(reply: Reply, protocol: int, put: Put) -> None:
    try:
        write = WRITERS[type(reply)]
    except KeyError:
        # Enums, exceptions and the like are encoded as their base type.
        write = next((one for kind, one in WRITERS.items() if isinstance(reply, kind)), _refuse)
    write(reply, protocol, put)


def _refuse(reply: Reply, protocol: int, put: Put) -> None:
    raise TypeError(f"{type(reply).__name__} is no reply")


def _encoded(reply: Encoded, protocol: int, put: Put) -> None:
    put(reply)


def _replies(reply: Replies, protocol: int, put: Put) -> None:
    for one in reply:
        _write(one, protocol, put)


def _bytes(reply: bytes, protocol: int, put: Put) -> None:
    put(b"$%d\r\n%b\r\n" % (len(reply), reply))


def _str(reply: str, protocol: int, put: Put) -> None:
    data = reply.encode()
    put(b"$%d\r\n%b\r\n" % (len(data), data))


def _bool(reply: bool, protocol: int, put: Put) -> None:
    put((b"#t\r\n" if reply else b"#f\r\n") if protocol == RESP3 else b":%d\r\n" % reply)


def _int(reply: int, protocol: int, put: Put) -> None:
    put(b":%d\r\n" % reply)


def _none(reply: None, protocol: int, put: Put) -> None:
    put(b"_\r\n" if protocol == RESP3 else b"$-1\r\n")


def _no_array(reply: _NoArray, protocol: int, put: Put) -> None:
    put(b"_\r\n" if protocol == RESP3 else b"*-1\r\n")


def _float(reply: float, protocol: int, put: Put) -> None:
    text = f"{reply:.17g}".encode()
    put(b",%b\r\n" % text if protocol == RESP3 else b"$%d\r\n%b\r\n" % (len(text), text))


def _list(reply: Sequence[Reply], protocol: int, put: Put) -> None:
    put(b"*%d\r\n" % len(reply))
    for item in reply:
        _write(item, protocol, put)


def _dict(reply: dict[Any, Reply], protocol: int, put: Put) -> None:
    put(b"%%%d\r\n" % len(reply) if protocol == RESP3 else b"*%d\r\n" % (2 * len(reply)))
    for key, value in reply.items():
        _write(key, protocol, put)
        _write(value, protocol, put)


def _set(reply: set[Any], protocol: int, put: Put) -> None:
    put(b"~%d\r\n" % len(reply) if protocol == RESP3 else b"*%d\r\n" % len(reply))
    for item in sorted(reply):
        _write(item, protocol, put)


def _pairs(reply: Pairs, protocol: int, put: Put) -> None:
    put(b"%%%d\r\n" % len(reply.pairs) if protocol == RESP3 else b"*%d\r\n" % len(reply.pairs))
    for key, value in reply.pairs:
        if protocol != RESP3:
            put(b"*2\r\n")
        _write(key, protocol, put)
        _write(value, protocol, put)


def _tags(reply: Tags, protocol: int, put: Put) -> None:
    put(b"~%d\r\n" % len(reply.words) if protocol == RESP3 else b"*%d\r\n" % len(reply.words))
    for word in reply.words:
        put(b"+%b\r\n" % _line(word))


def _simple(reply: Simple, protocol: int, put: Put) -> None:
    put(b"+%b\r\n" % _line(reply.text))


def _error(reply: BaseException, protocol: int, put: Put) -> None:
    put(b"-%b\r\n" % _line(error_text(reply)))


def _verbatim(reply: Verbatim, protocol: int, put: Put) -> None:
    data = reply.text.encode()
    put(b"=%d\r\ntxt:%b\r\n" % (len(data) + 4, data) if protocol == RESP3 else b"$%d\r\n%b\r\n" % (len(data), data))


def _line(text: str) -> bytes:
    """Remove line ends, which would end the reply."""
    return text.replace("\r", " ").replace("\n", " ").encode(errors="replace")


# bool before int, its base class.
WRITERS: dict[type, Callable[[Any, int, Put], None]] = {
    bytes: _bytes,
    Encoded: _encoded,
    Replies: _replies,
    str: _str,
    bool: _bool,
    int: _int,
    type(None): _none,
    _NoArray: _no_array,
    float: _float,
    list: _list,
    tuple: _list,
    dict: _dict,
    set: _set,
    frozenset: _set,
    Pairs: _pairs,
    Tags: _tags,
    Simple: _simple,
    Verbatim: _verbatim,
    BaseException: _error,
}
