"""The Redis protocol as bytes: a connection that keeps every type a reply has, where clients would smooth it over."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.ports import LOOPBACK

Argument = bytes | str | int | float
TIMEOUT_SECONDS = 60.0


class Reply(NamedTuple):
    """A reply with its type byte. `value` is bytes, an int, None, or a list of replies (a map: keys and values)."""

    kind: str
    value: Any

    @property
    def plain(self) -> Any:
        """Without the types: bytes, ints, None, lists; errors are raised."""
        if self.kind == "-":
            raise ReplyError(self.value.decode())
        if isinstance(self.value, list):
            return [item.plain for item in self.value]
        return self.value


class ReplyError(Exception):
    """An error reply."""


class Closed(Exception):
    """The server closed the connection."""


def frame(*arguments: Argument) -> bytes:
    """A command as clients send it."""
    parts = [argument if isinstance(argument, bytes) else str(argument).encode() for argument in arguments]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


class Wire:
    """One connection."""

    def __init__(self, port: int, protocol: int = 2, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.socket = socket.create_connection((LOOPBACK, port), timeout=timeout_seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()
        if protocol != 2:
            assert self.ask("HELLO", protocol).kind == "%"

    def call(self, *arguments: Argument) -> Any:
        """The reply without its types; an error reply is raised."""
        return self.ask(*arguments).plain

    def ask(self, *arguments: Argument) -> Reply:
        self.send(frame(*arguments))
        return self.read()

    def error(self, *arguments: Argument) -> str:
        """The error that the command must get."""
        reply = self.ask(*arguments)
        assert reply.kind == "-", f"{arguments} got no error but {reply}"
        text: str = reply.value.decode()
        return text

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> Reply:
        line = self._line()
        kind, rest = chr(line[0]), bytes(line[1:])
        match kind:
            case "+" | "-" | "," | "(" | "#" | "_":
                return Reply(kind, rest or None)
            case ":":
                return Reply(kind, int(rest))
            case "$" | "=" | "!":
                return Reply(kind, None if rest == b"-1" else self._bulk(int(rest)))
            case "*" | "~" | ">":
                return Reply(kind, None if rest == b"-1" else [self.read() for _ in range(int(rest))])
            case "%":
                return Reply(kind, [self.read() for _ in range(2 * int(rest))])
            case _:
                raise AssertionError(f"a reply cannot begin with {kind!r}: {line!r}")

    def read_until_closed(self) -> bytes:
        """Everything that still comes."""
        while self._receive():
            pass
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def close(self) -> None:
        self.socket.close()

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            self._need()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _bulk(self, size: int) -> bytes:
        while len(self._buffer) < size + 2:
            self._need()
        body = bytes(self._buffer[:size])
        assert self._buffer[size : size + 2] == b"\r\n"
        del self._buffer[: size + 2]
        return body

    def _need(self) -> None:
        if not self._receive():
            raise Closed

    def _receive(self) -> bool:
        try:
            data = self.socket.recv(1 << 16)
        except (ConnectionResetError, BrokenPipeError):
            return False
        self._buffer += data
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
