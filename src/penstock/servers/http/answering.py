"""Answers that are a status and a body, and nothing else: what the API says. Made for being written in one piece."""

from __future__ import annotations

from typing import Any

JSON = "application/json"


class Answer:
    """Like a response of starlette, without what only pages need."""

    __slots__ = ("body", "media_type", "status_code")

    def __init__(self, body: bytes, status_code: int = 200, media_type: str = JSON) -> None:
        self.body = body
        self.status_code = status_code
        self.media_type = media_type

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [
            (b"content-type", self.media_type.encode("ascii")),
            (b"content-length", str(len(self.body)).encode("ascii")),
        ]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})
