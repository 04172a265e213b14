"""Requests with headers in a dictionary, and a body that is never larger than allowed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import ClientDisconnect, Request

from penstock.servers.http.problems import Problem

# The key under which Penstock's own server puts the connection into the scope's `state`; other servers do not.
CONNECTION = "penstock.connection"
NO_STATE: dict[str, Any] = {}


class HttpRequest(Request):
    """`fields` are the headers as received, with names in lower case; of several with one name the first counts. A
    request is checked for ten of them, and starlette searches its list for each. `connection` is None where another
    server than Penstock's runs the application. `limit` is the largest body; None for one that is read as a stream."""

    def __init__(self, scope: Any, receive: Any, limit: int | None) -> None:
        super().__init__(scope, receive)
        self.fields: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        self.connection: Any = (scope.get("state") or NO_STATE).get(CONNECTION)
        self.limit = limit
        self._whole_body: bytes | None = None

    async def body(self) -> bytes:
        body = bytearray()
        receive = self.receive
        while self._whole_body is None:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            part: bytes = message.get("body", b"")
            if self.limit is not None and len(body) + len(part) > self.limit:
                raise too_large(self.limit)
            if not message.get("more_body", False):
                self._whole_body = bytes(body + part) if body else part
            body += part
        return self._whole_body

    async def stream(self) -> AsyncGenerator[bytes, None]:
        if self._whole_body is None:
            async for part in super().stream():
                yield part
        else:
            yield self._whole_body


def too_large(limit: int) -> Problem:
    return Problem(
        413,
        f"the body has more than {limit} bytes (the setting http.body_bytes): send less at a time, or many messages as "
        "a stream",
        "BodyTooLarge",
    )
