"""Send, get and ack in the commands of each contender, encoded in advance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from bench.plan import payload

QUEUE = b"bench"
GROUP = b"workers"


class Dialect(Protocol):
    def prepare(self) -> list[bytes]:
        """Commands to give once, before the first message."""

    def send(self, number: int) -> bytes: ...

    def get(self, consumer: bytes) -> bytes: ...

    def id_in(self, reply: Any) -> bytes:
        """The id in the reply to a get."""

    def ack(self, id: bytes) -> bytes: ...


class Streams:
    """Redis Streams: what Redis offers a work queue, and what Penstock understands as well."""

    def prepare(self) -> list[bytes]:
        return [command(b"XGROUP", b"CREATE", QUEUE, GROUP, b"0", b"MKSTREAM")]

    def send(self, number: int) -> bytes:
        return command(b"XADD", QUEUE, b"*", b"payload", payload(number))

    def get(self, consumer: bytes) -> bytes:
        return command(b"XREADGROUP", b"GROUP", GROUP, consumer, b"COUNT", b"1", b"STREAMS", QUEUE, b">")

    def id_in(self, reply: Any) -> bytes:
        id: bytes = reply[0][1][0][0]
        return id

    def ack(self, id: bytes) -> bytes:
        return command(b"XACK", QUEUE, GROUP, id)


class Bananaq:
    """The queue commands of bananaq."""

    def prepare(self) -> list[bytes]:
        return []

    def send(self, number: int) -> bytes:
        return command(b"QADD", QUEUE, b"3600", payload(number))

    def get(self, consumer: bytes) -> bytes:
        return command(b"QGET", QUEUE, GROUP)

    def id_in(self, reply: Any) -> bytes:
        id: bytes = reply[0]
        return id

    def ack(self, id: bytes) -> bytes:
        return command(b"QACK", QUEUE, GROUP, id)


DIALECTS: dict[str, Dialect] = {"streams": Streams(), "bananaq": Bananaq()}


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def errors(replies: Sequence[Any]) -> list[Exception]:
    return [reply for reply in replies if isinstance(reply, Exception)]
