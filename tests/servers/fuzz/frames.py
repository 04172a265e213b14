"""Frames that are nearly right: whole commands, cut, flipped, spliced and lied about. The same seed makes the same."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.servers.clients.wire import frame

# Commands that never reach the store, and commands that do.
TALK: list[list[bytes]] = [
    [b"PING"],
    [b"PING", b"hello"],
    [b"ECHO", b"hello"],
    [b"HELLO", b"3", b"SETNAME", b"fuzz"],
    [b"CLIENT", b"SETINFO", b"LIB-NAME", b"fuzz"],
    [b"CLIENT", b"GETNAME"],
    [b"COMMAND", b"DOCS", b"QADD"],
    [b"MULTI"],
    [b"DISCARD"],
    [b"SELECT", b"0"],
    [b"QREGISTER", b"fuzzed"],
    [b"RESET"],
]
STORE: list[list[bytes]] = [
    [b"INFO"],
    [b"EXEC"],
    [b"QADD", b"fuzzed", b"60", b"contents"],
    [b"QADD", b"fuzzed", b"0.5", b"contents", b"NOBLOCK"],
    [b"QGET", b"fuzzed", b"g", b"EX", b"0.5"],
    [b"QACK", b"fuzzed", b"g", b"9919b6ba-298a-44ee-9127-7176e91fd7d7"],
    [b"QNOTIFY", b"g", b"0.01", b"fuzzed"],
    [b"QSTATUS", b"fuzzed", b"GROUPS", b"g"],
    [b"QINFO", b"fuzzed"],
    [b"QLPUSH", b"fuzzed", b"id", b"contents"],
    [b"QRPOP", b"fuzzed", b"EX", b"0"],
    [b"QFLUSH", b"fuzzed-not"],
    [b"XADD", b"fuzzed", b"*", b"field", b"value"],
    [b"XLEN", b"fuzzed"],
    [b"XRANGE", b"fuzzed", b"-", b"+", b"COUNT", b"3"],
    [b"XGROUP", b"CREATE", b"fuzzed", b"g", b"0", b"MKSTREAM"],
    [b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"1", b"BLOCK", b"5", b"STREAMS", b"fuzzed", b">"],
    [b"XACK", b"fuzzed", b"g", b"1-1"],
    [b"XPENDING", b"fuzzed", b"g", b"-", b"+", b"10"],
    [b"XCLAIM", b"fuzzed", b"g", b"c", b"0", b"1-1"],
    [b"XAUTOCLAIM", b"fuzzed", b"g", b"c", b"0", b"0-0"],
    [b"XINFO", b"STREAM", b"fuzzed"],
    [b"XTRIM", b"fuzzed", b"MAXLEN", b"1000"],
    [b"XDEL", b"fuzzed", b"1-1"],
]
# A command that reaches the store costs a disk's time: a smaller share of many inputs is still thousands of each.
STORE_SHARE = 0.2
# Numbers and words that parsers and commands trip over.
HOSTILE = [
    *(b"", b"-1", b"0", b"00", b"-0", b"+1", b"01", b"1e9", b"nan", b"inf", b"-inf", b"1_0", b" 1", b"1 "),
    *(b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616", b"1" * 400),
    *(
        b"\x00",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        "٣".encode(),
        b"'",
        b'"',
        b";--",
        b"%s%n",
        b"$",
        b"*",
        b"\r\n",
        b"a" * 5000,
    ),
    *(b"0-0", b"1-", b"-1-1", b"1-1-1", b"18446744073709551615-18446744073709551615", b"(", b"(0-0", b"+", b"-", b">"),
    *(b"EX", b"NOBLOCK", b"GROUPS", b"STREAMS", b"COUNT", b"BLOCK", b"MAXLEN", b"~", b"=", b"LIMIT"),
]
HEADERS = [
    b"*1\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"*3\r\n",
    b"$4\r\n",
    b"$-1\r\n",
    b"$0\r\n\r\n",
    b"*99999\r\n",
    b"$99999\r\n",
]
REST = [
    b"%1\r\n",
    b"~1\r\n",
    b">1\r\n",
    b"_\r\n",
    b"#t\r\n",
    b",1.5\r\n",
    b"(1\r\n",
    b"=5\r\ntxt:a\r\n",
    b"|1\r\n",
    b"!1\r\n",
]


class Mutator:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._ways: list[Callable[[bytes], bytes]] = [
            self._as_it_is, self._flip, self._cut, self._drop, self._double, self._lie, self._insert, self._swap_in,
            self._noise,
        ]  # fmt: skip

    def input(self) -> bytes:
        """One to four commands, some of them with hostile words, and up to two mutations on top."""
        data = b"".join(frame(*self._words()) for _ in range(self._random.choice([1, 1, 1, 2, 4])))
        for _ in range(self._random.choice([0, 0, 1, 1, 2])):
            data = self._random.choice(self._ways)(data)
        return data

    def split(self, data: bytes) -> list[bytes]:
        """The same bytes in pieces."""
        cuts = sorted(self._random.randrange(len(data) + 1) for _ in range(self._random.choice([1, 2, 5, 20])))
        return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    def _words(self) -> list[bytes]:
        words = list(self._random.choice(STORE if self._random.random() < STORE_SHARE else TALK))
        for _ in range(self._random.choice([0, 0, 1, 2])):
            place = self._random.randrange(len(words) + 1)
            match self._random.randrange(3):
                case 0:
                    words[place : place + 1] = [self._random.choice(HOSTILE)]
                case 1:
                    words.insert(place, self._random.choice(HOSTILE))
                case _:
                    del words[place:]
        return words or [b""]

    def _place(self, data: bytes) -> int:
        return self._random.randrange(len(data) + 1)

    def _as_it_is(self, data: bytes) -> bytes:
        return data

    def _flip(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self._random.randint(1, 4)):
            if changed:
                changed[self._random.randrange(len(changed))] ^= 1 << self._random.randrange(8)
        return bytes(changed)

    def _cut(self, data: bytes) -> bytes:
        return data[: self._place(data)]

    def _drop(self, data: bytes) -> bytes:
        start = self._place(data)
        return data[:start] + data[start + self._random.randint(1, 8) :]

    def _double(self, data: bytes) -> bytes:
        start, end = sorted((self._place(data), self._place(data)))
        return data[:end] + data[start:]

    def _lie(self, data: bytes) -> bytes:
        """Some number in a header becomes another."""
        starts = [place for place in range(len(data)) if data[place : place + 1] in (b"*", b"$")]
        if not starts:
            return data
        start = self._random.choice(starts) + 1
        end = data.find(b"\r\n", start)
        return data[:start] + self._random.choice(HOSTILE) + (data[end:] if end >= 0 else b"")

    def _insert(self, data: bytes) -> bytes:
        place = self._place(data)
        return data[:place] + self._random.choice([*HEADERS, *REST, *HOSTILE]) + data[place:]

    def _swap_in(self, data: bytes) -> bytes:
        """Inline commands between frames."""
        line = b" ".join(self._words()) + self._random.choice([b"\r\n", b"\n", b""])
        return self._random.choice([line + data, data + line])

    def _noise(self, data: bytes) -> bytes:
        return self._random.randbytes(self._random.randint(1, 200)) + data
