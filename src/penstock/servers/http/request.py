"""Requests with headers in a dictionary, and a body that is never larger than allowed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import ClientDisconnect, Request

from penstock.servers.http.problems import Problem

# The key under which Penstock's own server puts the connection into the scope's `state`; other servers do not.
CONNECTION = "penstock.connection"


class HttpRequest(Request):
    """`fields` are the headers as received, with names in lower case; of several with one name the first counts. A
    request is checked for ten of them, and starlette searches its list for each. `connection` is None where another
    server than Penstock's runs the application."""

    def __init__(self, scope: Any, receive: Any, limit: int | None = None) -> None:
        super().__init__(scope, receive)
        self.fields: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        self.connection: Any = connection_of(scope)
        self._limit = limit
        self._whole_body: bytes | None = None

    async def body(self) -> bytes:
        if self._whole_body is None:
            self._whole_body = await self._read()
        return self._whole_body

    async def stream(self) -> AsyncGenerator[bytes, None]:
        if self._whole_body is None:
            async for part in super().stream():
                yield part
        else:
            yield self._whole_body

    async def _read(self) -> bytes:
        body = bytearray()
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            part: bytes = message.get("body", b"")
            if self._limit is not None and len(body) + len(part) > self._limit:
                raise too_large(self._limit)
            if not message.get("more_body", False):
                return bytes(body + part) if body else part
            body += part


def connection_of(scope: Any) -> Any:
    state = scope.get("state")
    return None if state is None else state.get(CONNECTION)


def too_large(limit: int) -> Problem:
    return Problem(
        413,
        f"the body has more than {limit} bytes (the setting http.body_bytes): send less at a time, or many messages as "
        "a stream",
        "BodyTooLarge",
    )
