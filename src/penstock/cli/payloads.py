"""Payloads from the command line or from standard input, with their content types."""

from __future__ import annotations

import sys
from typing import NamedTuple

import typer

from penstock.domain.errors import InvalidInput
from penstock.domain.message import BYTES, JSON, decode_json
from penstock.domain.validation import shown

TEXT = "text/plain"
STANDARD_INPUT = "-"


class PayloadContent(NamedTuple):
    payload: bytes
    content_type: str


def read_content(argument: str | None, as_text: bool, as_bytes: bool) -> PayloadContent:
    """Read the payload of one message. JSON is validated but not rewritten: its bytes are sent as given."""
    if as_text and as_bytes:
        raise typer.BadParameter("a payload is either --text or --bytes", param_hint="--text")
    if argument is None:
        raise typer.BadParameter("give a payload, or - to read it from standard input", param_hint="PAYLOAD")
    raw = standard_input() if argument == STANDARD_INPUT else _argument_bytes(argument)
    if as_bytes:
        return PayloadContent(raw, BYTES)
    if as_text:
        return PayloadContent(_checked_text(raw), TEXT)
    return PayloadContent(_checked_json(raw), JSON)


def read_lines() -> list[PayloadContent]:
    """Read one JSON value per line of standard input; empty lines are skipped."""
    contents = []
    for number, line in enumerate(standard_input().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            decode_json(line)
        except InvalidInput:
            raise InvalidInput(f"line {number} is not JSON: {shown(_quotable(line))}; nothing was sent") from None
        contents.append(PayloadContent(line.strip(), JSON))
    return contents


def standard_input() -> bytes:
    return sys.stdin.buffer.read()


def _argument_bytes(argument: str) -> bytes:
    # Python decodes arguments that are not UTF-8 to lone surrogates; restore their bytes.
    return argument.encode("utf-8", "surrogateescape")


def _checked_text(raw: bytes) -> bytes:
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the payload is not UTF-8 text (byte {error.start}): send it with --bytes") from None
    return raw


def _checked_json(raw: bytes) -> bytes:
    try:
        decode_json(raw)
    except InvalidInput:
        raise InvalidInput(
            f"the payload {shown(_quotable(raw))} is not JSON: quote it as JSON, or send it with --text or --bytes"
        ) from None
    return raw.strip()


def _quotable(raw: bytes) -> str | bytes:
    """The payload as text if it is UTF-8, for an error message."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
