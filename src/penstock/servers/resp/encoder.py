"""From replies to bytes, for both versions of the protocol through one function.

A reply is made of plain values: None, int, float, bool, str, bytes, lists, dicts, sets, and the few classes below for
what only the protocol tells apart. RESP2 has no maps, so a dict becomes a list of keys and values there.
"""

from __future__ import annotations

from typing import Any

import msgspec

Reply = Any


class Simple(msgspec.Struct, frozen=True):
    """A word such as OK."""

    text: str


class Failure(msgspec.Struct, frozen=True):
    """An error reply; the first word is its code."""

    text: str


class Verbatim(msgspec.Struct, frozen=True):
    """Text for people."""

    text: str


class Pairs(msgspec.Struct, frozen=True):
    """A map that RESP2 tells as a list of pairs, as stream reads are."""

    pairs: list[tuple[Any, Any]]


class _NoArray:
    """Nothing, where an array was asked for."""


NO_ARRAY = _NoArray()
OK = Simple("OK")
RESP2, RESP3 = 2, 3


def encode(reply: Reply, protocol: int) -> bytes:
    kind = type(reply)
    if kind is str:
        reply = reply.encode()
        kind = bytes
    if kind is bytes:
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if kind is int:
        return b":%d\r\n" % reply
    parts: list[bytes] = []
    _write(reply, protocol, parts.append)
    return b"".join(parts)


def _write(reply: Reply, protocol: int, put: Any) -> None:
    match reply:
        case bytes():
            put(b"$%d\r\n%b\r\n" % (len(reply), reply))
        case str():
            data = reply.encode()
            put(b"$%d\r\n%b\r\n" % (len(data), data))
        case bool():
            put((b"#t\r\n" if reply else b"#f\r\n") if protocol == RESP3 else b":%d\r\n" % reply)
        case int():
            put(b":%d\r\n" % reply)
        case None:
            put(b"_\r\n" if protocol == RESP3 else b"$-1\r\n")
        case float():
            text = f"{reply:.17g}".encode()
            put(b",%b\r\n" % text if protocol == RESP3 else b"$%d\r\n%b\r\n" % (len(text), text))
        case list() | tuple():
            put(b"*%d\r\n" % len(reply))
            for item in reply:
                _write(item, protocol, put)
        case dict():
            put(b"%%%d\r\n" % len(reply) if protocol == RESP3 else b"*%d\r\n" % (2 * len(reply)))
            for key, value in reply.items():
                _write(key, protocol, put)
                _write(value, protocol, put)
        case set() | frozenset():
            put(b"~%d\r\n" % len(reply) if protocol == RESP3 else b"*%d\r\n" % len(reply))
            for item in sorted(reply):
                _write(item, protocol, put)
        case Simple(text):
            put(b"+%b\r\n" % _line(text))
        case Failure(text):
            put(b"-%b\r\n" % _line(text))
        case Verbatim(text):
            data = text.encode()
            put(
                b"=%d\r\ntxt:%b\r\n" % (len(data) + 4, data)
                if protocol == RESP3
                else b"$%d\r\n%b\r\n" % (len(data), data)
            )
        case Pairs(pairs):
            put(b"%%%d\r\n" % len(pairs) if protocol == RESP3 else b"*%d\r\n" % len(pairs))
            for key, value in pairs:
                if protocol != RESP3:
                    put(b"*2\r\n")
                _write(key, protocol, put)
                _write(value, protocol, put)
        case _NoArray():
            put(b"_\r\n" if protocol == RESP3 else b"*-1\r\n")
        case _:
            raise TypeError(f"{type(reply).__name__} is no reply")


def _line(text: str) -> bytes:
    """One line, whatever the text says: a line's end inside it would be read as the next reply."""
    return text.replace("\r", " ").replace("\n", " ").encode(errors="replace")
