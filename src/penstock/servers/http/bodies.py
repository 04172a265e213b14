"""Request bodies: checks of their length, forms, and lines, in bounded memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from penstock.servers.http.problems import Problem
from penstock.servers.http.request import HttpRequest, too_large

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"
MAX_FIELDS = 1000


def content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def check_length(request: HttpRequest) -> None:
    """Check the declared length; the bytes are counted while reading, too."""
    if request.fields.get(b"content-encoding", b"identity").lower() not in (b"identity", b""):
        raise Problem(415, "a body must not be compressed: send it as it is", "CompressedBody")
    claimed = request.fields.get(b"content-length", b"")
    if request.limit is not None and claimed.isdigit() and int(claimed) > request.limit:
        raise too_large(request.limit)


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form that a page of ours sent; of fields with one name the last."""
    known: dict[str, str] | None = getattr(request.state, "form", None)
    if known is None:
        known = dict(await fields_of(request))
        request.state.form = known
    return known


async def fields_of(request: Request) -> list[tuple[str, str]]:
    """All fields of a form in their order; several may have one name."""
    if not content_type(request) and not await request.body():
        return []  # a button without fields
    if content_type(request) != FORM:
        raise Problem(415, f"this takes a form ({FORM})", "WrongContentType")
    try:
        text = (await request.body()).decode("ascii")
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError:
        raise Problem(400, "the form is not one: fields are percent-encoded UTF-8", "InvalidForm") from None


async def lines_of(request: Request, limit: int) -> AsyncIterator[tuple[int, bytes]]:
    """Number and content of every line that is not empty, as they come in."""
    rest = bytearray()
    number = 0
    try:
        async for chunk in request.stream():
            rest += chunk
            if b"\n" in chunk:
                *lines, last = rest.split(b"\n")
                rest = bytearray(last)
                for line in lines:
                    number += 1
                    if stripped := bytes(line).strip():
                        yield number, stripped
            if len(rest) > limit:
                raise Problem(413, f"line {number + 1} has more than {limit} bytes (http.body_bytes)", "BodyTooLarge")
    except ClientDisconnect:
        raise Problem(400, "the client went away in the middle of the stream", "Disconnected") from None
    if stripped := bytes(rest).strip():
        yield number + 1, stripped
