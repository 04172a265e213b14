"""Names of queues, groups, consumers, addresses, keys, batches and schedules: one rule for all of them."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable

from penstock.domain.errors import InvalidName

MAX_NAME_BYTES = 255


def check_name(kind: str, value: object) -> str:
    """The name itself, or an error that says which rule it breaks. A name is data: any other character is allowed."""
    if not isinstance(value, str):
        raise InvalidName(f"{kind} must be a string, not {type(value).__name__}: {shown(value)}")
    if value.isascii() and value.isprintable() and 0 < len(value) <= MAX_NAME_BYTES:
        return value
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidName(f"{kind} {shown(value)} has a lone surrogate: names are valid UTF-8") from None
    if size == 0:
        raise InvalidName(f"{kind} is empty: a name has 1 to {MAX_NAME_BYTES} bytes of UTF-8")
    if size > MAX_NAME_BYTES:
        raise InvalidName(f"{kind} {shown(value)} has {size} bytes: a name has at most {MAX_NAME_BYTES} bytes of UTF-8")
    if any(unicodedata.category(character) == "Cc" for character in value):
        raise InvalidName(f"{kind} {shown(value)} has a control character: a name has none")
    return value


def nearest(value: str, known: Iterable[str]) -> str:
    """'; did you mean "x"?' when a known word is close, else nothing."""
    close = difflib.get_close_matches(value, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def shown(value: object, limit: int = 80) -> str:
    """The value as it may appear in an error: escaped, and short however long it is."""
    text = ascii(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
