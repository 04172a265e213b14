"""The interface of a protocol for actors, and how it reports the result of a call.

A call returns, or raises `Denied` (it certainly had no effect), or raises one of `LOST` (the effect is unknown). Any
other exception is a fault of the actor or of Penstock and ends the process with a traceback.
"""

from __future__ import annotations

import hashlib
import http.client
import json
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import penstock

MESSAGE = "chaos"
TICK = "penstock-tick"
# Fields of an item that the history does not need.
SENT = ("id", "headers")


class Denied(Exception):
    """The call was refused: nothing happened."""


class Lost(Exception):
    """The reply did not arrive, or does not tell whether the call happened."""


LOST: tuple[type[Exception], ...] = (Lost, penstock.StoreError, OSError, http.client.HTTPException)


@dataclass
class Item:
    """A message to be sent."""

    message: str
    priority: int = 0
    delay: float | None = None
    ttl: float | None = None
    key: str | None = None
    address: str | None = None
    id: str | None = None
    poison: bool = False
    batch: str | None = None
    conditional: bool = False
    headers: dict[str, str] | None = None

    @property
    def payload(self) -> dict[str, Any]:
        return {MESSAGE: self.message}

    @property
    def options(self) -> dict[str, Any]:
        """The options of the send, by their names in Python, SQL and HTTP."""
        named = {
            "priority": self.priority or None,
            "delay_seconds": self.delay,
            "ttl_seconds": self.ttl,
            "key": self.key,
            "address": self.address,
            "id": self.id,
            "headers": self.headers,
        }
        return {name: value for name, value in named.items() if value is not None}

    @property
    def described(self) -> dict[str, Any]:
        """The item as it is recorded in the history."""
        named = {
            name: value for name, value in vars(self).items() if value not in (None, False, 0) and name not in SENT
        }
        if self.headers is not None:
            named["content"] = content_of(self.payload, self.headers, self.priority, self.key)
        return named


class Taken(NamedTuple):
    """A delivery, as every protocol reports it."""

    id: str
    message: str
    token: int
    attempt: int
    handle: Any = None
    content: str | None = None

    @property
    def described(self) -> dict[str, Any]:
        named = {"id": self.id, "message": self.message, "token": self.token, "attempt": self.attempt}
        return named if self.content is None else {**named, "content": self.content}


class Port(Protocol):
    """One connection, used by one thread at a time."""

    def send(self, queue: str, items: list[Item]) -> list[str]:
        """Send all items or none; returns their ids."""

    def receive(self, queue: str, group: str, consumer: str, limit: int, lease_seconds: float) -> list[Taken]: ...

    def settle(self, queue: str, group: str, taken: Taken, verb: str, delay: float | None) -> str | None:
        """Settle, and return the new state where the protocol reports it."""

    def extend(self, queue: str, group: str, taken: Taken, seconds: float) -> None: ...

    def close(self) -> None: ...


def content_of(payload: Any, headers: Any, priority: int, key: str | None) -> str:
    """A digest of the parts of a message, without the headers that Penstock adds."""
    own = sorted((name, value) for name, value in (headers or {}).items() if not name.startswith("penstock-"))
    return hashlib.sha256(json.dumps([payload, own, priority, key]).encode()).hexdigest()[:12]


def message_of(payload: bytes | str, headers: Any = None) -> str:
    """The name of the message that a payload belongs to; that of a tick is in its header."""
    if headers and TICK in headers:
        return str(headers[TICK])
    found: str = json.loads(payload)[MESSAGE]
    return found
