"""A request as this application reads it: headers by name at once, and a body that is never larger than allowed."""

from __future__ import annotations

from typing import Any

from starlette.requests import ClientDisconnect, Request

from penstock.servers.http.problems import Problem


class Asked(Request):
    """`fields` are the headers as they came, in small letters; of several with one name the first counts. Looking them
    up there costs a tenth of what it does in starlette's list, and every request is asked for ten of them."""

    def __init__(self, scope: Any, receive: Any, limit: int | None = None) -> None:
        super().__init__(scope, receive)
        self.fields: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        self._limit = limit

    async def body(self) -> bytes:
        known: bytes | None = getattr(self, "_body", None)
        if known is None:
            # Where starlette keeps it too, for those who read it as a stream afterwards.
            known = self._body = await self._read()
        return known

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


def too_large(limit: int) -> Problem:
    return Problem(
        413,
        f"the body has more than {limit} bytes (the setting http.body_bytes): send less at a time, or many messages as "
        "a stream",
        "BodyTooLarge",
    )
