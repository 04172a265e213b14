"""The Redis protocol without a client library: a client of a few lines shares no code with the server."""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.parse import urlsplit

from penstock.chaos.ports.port import Denied, Item, Lost, Taken, content_of, message_of

TIMEOUT_SECONDS = 10
# Error replies of calls that had no effect. Others, such as TRYAGAIN, may hide a commit whose reply was lost.
REFUSED = ("LEASELOST", "OUTOFORDER", "DUPLICATEADDRESS", "BATCHCLOSED", "NOTFOUND")
OPTIONS = {"priority": "PRIORITY", "delay_seconds": "DELAY", "ttl_seconds": "TTL", "key": "KEY", "id": "ID",
           "address": "ADDRESS",
           "headers": "HEADERS"}  # fmt: skip


class RespPort:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "127.0.0.1", parts.port or 4777)
        self._socket: socket.socket | None = None
        self._buffer = b""

    def send(self, queue: str, items: list[Item]) -> list[str]:
        """Several commands are one transaction, by MULTI and EXEC."""
        calls = [_sending(queue, item) for item in items]
        if len(calls) == 1:
            return [self.call(*calls[0]).decode()]
        replies = self._talk([("MULTI",), *calls, ("EXEC",)])
        ids = replies[-1]
        if not isinstance(ids, list):
            raise Lost(f"EXEC: {ids!r}")
        for one in ids:
            _raise_error(one)
        return [one.decode() for one in ids]

    def receive(self, queue: str, group: str, consumer: str, limit: int, lease_seconds: float) -> list[Taken]:
        found = self.call(
            "QRECEIVE", queue, "GROUP", group, "CONSUMER", consumer, "LIMIT", limit, "LEASE", lease_seconds
        )
        return [_taken(dict(zip(one[::2], one[1::2], strict=True))) for one in found or ()]

    def settle(self, queue: str, group: str, taken: Taken, verb: str, delay: float | None) -> str | None:
        words: list[Any] = [f"Q{verb.upper()}", queue, group, taken.id]
        if verb in ("nak", "reschedule") and delay is not None:
            words += ["DELAY", delay]
        reply = self.call(*words, "TOKEN", taken.token)
        if reply == 0:
            raise Denied(f"{words[0]} answered 0")
        return reply.decode() if isinstance(reply, bytes) and verb != "ack" else None

    def extend(self, queue: str, group: str, taken: Taken, seconds: float) -> None:
        self.call("QEXTEND", queue, group, taken.id, seconds, "TOKEN", taken.token)

    def follow(self, queue: str, after: str, limit: int) -> list[tuple[str, str]]:
        """Return the stream entries after an id: (id, message)."""
        found = self.call("XREAD", "COUNT", limit, "BLOCK", 200, "STREAMS", queue, after)
        entries = found[0][1] if found else []
        return [(entry.decode(), message_of(_field(fields))) for entry, fields in entries]

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def call(self, *words: Any) -> Any:
        (reply,) = self._talk([words])
        _raise_error(reply)
        return reply

    def _talk(self, calls: list[tuple[Any, ...]]) -> list[Any]:
        try:
            if self._socket is None:
                self._socket, self._buffer = socket.create_connection(self._address, TIMEOUT_SECONDS), b""
            self._socket.sendall(b"".join(_encoded(words) for words in calls))
            return [self._reply() for _ in calls]
        except BaseException:
            self.close()
            raise

    def _reply(self) -> Any:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest
        if kind == b"-":
            return Denied(rest.decode()) if rest.decode().startswith(REFUSED) else Lost(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self._exactly(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self._reply() for _ in range(int(rest))]
        raise Lost(f"not a reply: {line!r}")

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            self._fill()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._fill()
        content, self._buffer = self._buffer[:size], self._buffer[size:]
        return content

    def _fill(self) -> None:
        assert self._socket is not None
        more = self._socket.recv(65536)
        if not more:
            raise Lost("the server closed the connection")
        self._buffer += more


def _sending(queue: str, item: Item) -> tuple[Any, ...]:
    options = [word for name, value in item.options.items() for word in (OPTIONS[name], _word(value))]
    return ("QSEND", queue, json.dumps(item.payload), "TYPE", "application/json", *options)


def _word(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict) else value


def _taken(fields: dict[bytes, Any]) -> Taken:
    headers = fields.get(b"headers") or []
    named = {name.decode(): value.decode() for name, value in zip(headers[::2], headers[1::2], strict=True)}
    message = message_of(fields[b"payload"], named)
    key = fields.get(b"key")
    content = content_of(
        json.loads(fields[b"payload"]), named, fields[b"priority"], None if key is None else key.decode()
    )
    return Taken(fields[b"id"].decode(), message, fields[b"token"], fields[b"attempt"], content=content)


def _field(fields: list[bytes]) -> bytes:
    return dict(zip(fields[::2], fields[1::2], strict=True))[b"payload"]


def _encoded(words: tuple[Any, ...]) -> bytes:
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def _raise_error(reply: Any) -> None:
    if isinstance(reply, Exception):
        raise reply
