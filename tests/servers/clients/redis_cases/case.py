"""One case of Redis' own tests, told anew: connections to a server, and keys that no other case uses."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from tests.servers.clients.queue_status import until
from tests.servers.clients.wire import Argument, Wire, frame

Entry = tuple[bytes, list[bytes]]


class Case:
    def __init__(self, port: int, name: str, version: tuple[int, ...] | None) -> None:
        self._port = port
        self._name = name
        self._version = version  # of Redis; None for Penstock
        self._opened = ExitStack()
        self.wire = self.connect()

    def __call__(self, *words: Argument) -> Any:
        return self.wire.call(*words)

    def error(self, *words: Argument) -> str:
        return self.wire.error(*words)

    def connect(self) -> Wire:
        return self._opened.enter_context(Wire(self._port))

    def close(self) -> None:
        self._opened.close()

    def key(self, name: str = "s") -> str:
        return f"{name}-{self._name}"

    def needs(self, *version: int) -> None:
        """What Redis has from a version on; Penstock always does."""
        if self._version is not None and self._version < version:
            pytest.skip(f"Redis {'.'.join(map(str, self._version))} does not have it yet")

    # -- streams -----------------------------------------------------------------------------------------------------

    def add(self, count: int, key: str | None = None) -> list[bytes]:
        """So many entries, `n` from 0 on; their ids."""
        return self.pipeline(*(("XADD", key or self.key(), "*", "n", number) for number in range(count)))

    def pipeline(self, *commands: tuple[Argument, ...]) -> list[Any]:
        self.wire.send(b"".join(frame(*command) for command in commands))
        return [self.wire.read().plain for _ in commands]

    def group(self, start: str = "0", name: str = "g", key: str | None = None) -> None:
        self("XGROUP", "CREATE", key or self.key(), name, start, "MKSTREAM")

    def read(self, *words: Argument, consumer: str = "c", group: str = "g", start: str = ">") -> list[Entry]:
        """Entries of the stream s, as a consumer."""
        return entries(self("XREADGROUP", "GROUP", group, consumer, *words, "STREAMS", self.key(), start))

    def range(self, key: str | None = None) -> list[Entry]:
        return [(one, fields) for one, fields in self("XRANGE", key or self.key(), "-", "+")]

    def info(self, *words: Argument) -> dict[str, Any]:
        """XINFO STREAM of the stream s."""
        return pairs(self("XINFO", "STREAM", self.key(), *words))

    def groups(self) -> dict[str, dict[str, Any]]:
        """XINFO GROUPS of the stream s, by name."""
        rows = [pairs(row) for row in self("XINFO", "GROUPS", self.key())]
        return {row["name"].decode(): row for row in rows}

    def consumers(self, group: str = "g") -> list[dict[str, Any]]:
        return [pairs(row) for row in self("XINFO", "CONSUMERS", self.key(), group)]

    def pending(self, *words: Argument) -> list[list[Any]]:
        """Rows of XPENDING: id, consumer, idle, deliveries."""
        rows: list[list[Any]] = self("XPENDING", self.key(), "g", *(words or ("-", "+", 10)))
        return rows

    def pass_milliseconds(self, count: int = 5) -> None:
        """A while in which nothing happens, so that the ids after it have a later time."""
        self("XREAD", "BLOCK", count, "STREAMS", self.key("never"), "$")

    # -- waiting -----------------------------------------------------------------------------------------------------

    def block(self, *words: Argument, wire: Wire | None = None) -> Wire:
        """A connection that waits with this command."""
        before = self.blocked()
        waiting = wire or self.connect()
        waiting.send(frame(*words))
        until(lambda: self.blocked() > before)
        return waiting

    def blocked(self) -> int:
        lines = self("INFO", "clients").decode().splitlines()
        return int(next(line.partition(":")[2] for line in lines if line.startswith("blocked_clients:")))


def pairs(flat: list[Any]) -> dict[str, Any]:
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def entries(reply: Any, place: int = 0) -> list[Entry]:
    """Of one stream in a reply to XREAD or XREADGROUP."""
    return [] if reply is None else [(one, fields) for one, fields in reply[place][1]]


def ids(found: list[Entry]) -> list[bytes]:
    return [one for one, _ in found]


def values(found: list[Entry]) -> list[bytes]:
    """The value of each entry's first field."""
    return [fields[1] for _, fields in found]
