"""Validation of values from callers: names, times, durations and whole numbers. An error names the value at fault."""

from __future__ import annotations

import difflib
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from penstock.domain.errors import InvalidInput, InvalidName
from penstock.domain.limits import MAX_NAME_BYTES, MAX_SECONDS
from penstock.domain.timestamps import EARLIEST, EPOCH, LATEST

# Units of a duration: 500ms, 30s, 5m, 2h, 1d, 1h30m.
UNIT_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|[smhdw]))+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?")
_PART = re.compile(r"([0-9.]+)(ms|[smhdw])")


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


def from_time(kind: str, value: object) -> int:
    if not isinstance(value, datetime):
        raise InvalidInput(f"{kind} must be a datetime with a time zone, not {type(value).__name__}: {shown(value)}")
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidInput(
            f"{kind} {value.isoformat()} has no time zone: use an aware datetime, such as datetime.now(UTC)"
        )
    at = (value - EPOCH) // timedelta(microseconds=1)
    if not EARLIEST <= at <= LATEST:
        raise InvalidInput(f"{kind} {value.isoformat()} is not within the years 1 to 9999 in UTC")
    return at


def seconds_of(text: str) -> float:
    """The seconds that a text means: a plain number, or numbers with units."""
    given = text.strip().lower()
    if _DURATION.fullmatch(given):
        return math.fsum(float(number) * UNIT_SECONDS[unit] for number, unit in _PART.findall(given))
    if _NUMBER.fullmatch(given):
        return float(given)
    raise InvalidInput(
        f"{shown(text)} is not a duration: use seconds such as 90, or units such as 500ms, 30s, 5m, 2h, 1d, 1h30m"
    )


def check_seconds(kind: str, value: object, *, minimum: float = 0, above: bool = False) -> float:
    """A finite number of seconds within reason. With `above`, the minimum itself is refused."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"{kind} must be a number of seconds, not {type(value).__name__}: {shown(value)}")
    if not math.isfinite(value):
        raise InvalidInput(f"{kind} must be a finite number of seconds, not {value}")
    if value < minimum or (above and value == minimum):
        raise InvalidInput(f"{kind} must be {'more than' if above else 'at least'} {minimum:g} seconds, not {value}")
    if value > MAX_SECONDS:
        raise InvalidInput(f"{kind} must be at most {MAX_SECONDS} seconds (a century), not {value}")
    return value


def check_list(wanted: str, value: Iterable[Any]) -> list[Any]:
    """The items as a list. A single value is refused, also one that happens to be iterable; `wanted` says what the call
    takes."""
    if isinstance(value, list):
        return value
    if isinstance(value, str | bytes | bytearray | memoryview | Mapping) or not isinstance(value, Iterable):
        raise InvalidInput(f"{wanted}, not {type(value).__name__}: {shown(value)}")
    return list(value)


def check_integer(kind: str, value: object, minimum: int, maximum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"{kind} must be a whole number, not {type(value).__name__}: {shown(value)}")
    if not minimum <= value <= maximum:
        raise InvalidInput(f"{kind} must be between {minimum} and {maximum}, not {shown(value)}")
    return value
