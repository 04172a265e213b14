"""Flash messages: the result of an action, in a cookie that the next page shows once."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

COOKIE = "penstock_notice"
SECONDS = 60
MAX_CHARACTERS = 600


class Notice(NamedTuple):
    kind: str
    text: str


def leave(request: Request, response: Response, text: str, kind: str) -> None:
    encoded = msgspec.json.encode((kind, text[:MAX_CHARACTERS]))
    response.set_cookie(
        COOKIE,
        base64.urlsafe_b64encode(encoded).decode("ascii"),
        max_age=SECONDS,
        path=_path(request),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def waiting(request: Request) -> Notice | None:
    """The notice in the cookie; None if the cookie is invalid, since clients can change it."""
    value = request.cookies.get(COOKIE)
    if value is None:
        return None
    try:
        kind, text = msgspec.json.decode(base64.urlsafe_b64decode(value), type=tuple[str, str])
    except (msgspec.DecodeError, binascii.Error, ValueError):
        return None
    return Notice(kind if kind in ("good", "bad") else "good", text)


def forget(request: Request, response: Response) -> None:
    response.delete_cookie(COOKIE, path=_path(request))


def _path(request: Request) -> str:
    root: str = request.scope.get("root_path", "")
    return root or "/"
