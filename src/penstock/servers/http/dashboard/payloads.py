"""Payloads on pages: JSON is indented, text shown as it is, anything else as a hex dump.

JSON is indented token by token from the original text, not decoded: numbers keep their digits, duplicate names stay,
and depth costs nothing. Only the beginning of a large payload is shown; all of it can be downloaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from markupsafe import Markup, escape

from penstock.domain.control_characters import escape_controls
from penstock.domain.message import JSON

SHOWN_BYTES = 64 * 1024
SHOWN_BINARY_BYTES = 4 * 1024
PREVIEW_CHARACTERS = 160
# Deeper levels are not indented further.
MAX_INDENT = 24
MAX_TOKENS = 12_000
LEFTOVER_CHARACTERS = 2_000
ROW = 16
_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*")|(?P<number>-?[0-9][0-9.eE+-]*)|(?P<word>true|false|null)|(?P<mark>[{}\[\],:])"""
    r"""|(?P<space>[ \t\r\n]+)|.""",
    re.DOTALL,
)
_LINE_BREAKS = "\n\t"
OPENING, CLOSING = ("{", "["), ("}", "]")
Token = tuple[str, str]


class PayloadView(NamedTuple):
    """`kind` is json, text or bytes; `is_whole` is False if only the beginning is shown."""

    kind: str
    markup: Markup
    size: int
    is_whole: bool


def payload_view(payload: bytes, content_type: str) -> PayloadView:
    is_whole = len(payload) <= SHOWN_BYTES
    text = _text(payload[:SHOWN_BYTES], is_whole)
    if text is None:
        return PayloadView("bytes", _dump(payload), len(payload), len(payload) <= SHOWN_BINARY_BYTES)
    if content_type == JSON or _looks_like_json(text):
        tokens, rest = _tokens(text)
        if tokens and (not rest or not is_whole or len(tokens) == MAX_TOKENS):
            markup = Markup("".join(_pieces(tokens))) + escape(escape_controls(rest, _LINE_BREAKS))
            return PayloadView("json", markup, len(payload), is_whole and not rest)
    return PayloadView("text", escape(escape_controls(text, _LINE_BREAKS)), len(payload), is_whole)


def preview(payload: bytes) -> str:
    """The beginning on one line."""
    head = payload[: PREVIEW_CHARACTERS * 4]
    text = _text(head, is_whole=len(head) == len(payload))
    if text is None:
        return payload[:24].hex(" ") + (" …" if len(payload) > 24 else "")
    flat = " ".join(text[: PREVIEW_CHARACTERS * 2].split())
    return escape_controls(flat[:PREVIEW_CHARACTERS]) + (
        "…" if len(flat) > PREVIEW_CHARACTERS or len(head) < len(payload) else ""
    )


def _text(head: bytes, is_whole: bool) -> str | None:
    """None if it is not text. A character cut at the end is left out."""
    for missing in range(1 if is_whole else 4):
        try:
            text = head[: len(head) - missing].decode()
        except UnicodeDecodeError:
            continue
        return None if "\x00" in text else text
    return None


def _looks_like_json(text: str) -> bool:
    return text[:1] in ("{", "[") and len(text) > 1 and text[1:].lstrip()[:1] in ('"', "{", "[", "}", "]")


def _tokens(text: str) -> tuple[list[Token], str]:
    """The tokens, and the rest after them: cut off, not JSON, or beyond the limit."""
    tokens: list[Token] = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind is None or len(tokens) == MAX_TOKENS:
            return tokens, text[match.start() : match.start() + LEFTOVER_CHARACTERS]
        if kind != "space":
            tokens.append((kind, match.group()))
    return tokens, ""


def _pieces(tokens: list[Token]) -> Iterator[str]:
    depth = 0
    before = ""
    for place, (kind, token) in enumerate(tokens):
        following = tokens[place + 1][1] if place + 1 < len(tokens) else ""
        if token in CLOSING:
            depth = max(0, depth - 1)
            yield token if before in OPENING else _line(depth) + token
        elif token in OPENING:
            depth += 1
            yield token if following in CLOSING else token + _line(depth)
        elif token == ",":
            yield "," + _line(depth)
        elif token == ":":
            yield ": "
        else:
            name = "key" if kind == "string" and following == ":" else kind
            # Two adjacent values are not JSON; keep them apart.
            gap = "" if before in ("", ",", ":", *OPENING) else " "
            yield f'{gap}<span class="json-{name}">{escape(escape_controls(token))}</span>'
        before = token


def _line(depth: int) -> str:
    return "\n" + "  " * min(depth, MAX_INDENT)


def _dump(payload: bytes) -> Markup:
    """A hex dump: offset, bytes, and their ASCII characters."""
    lines = []
    for offset in range(0, min(len(payload), SHOWN_BINARY_BYTES), ROW):
        row = payload[offset : min(offset + ROW, SHOWN_BINARY_BYTES)]
        characters = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        numbers = f"{row[:8].hex(' '):23}  {row[8:].hex(' '):23}"
        lines.append(Markup('<span class="dim">{:08x}</span>  {}  {}').format(offset, numbers, characters))
    return Markup("\n").join(lines)
