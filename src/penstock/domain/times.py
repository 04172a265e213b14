"""Times and durations. Inside Penstock a time is an integer of microseconds since 1970 (UTC), so that engines can
compare and store it exactly; at the public surface it is an aware `datetime`."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from penstock.domain.errors import InvalidInput
from penstock.domain.names import shown

SECOND = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A century: longer durations are mistakes (milliseconds given as seconds), and would overflow `datetime` further on.
MAX_SECONDS = 100 * 366 * 24 * 3600


def microseconds(seconds: float) -> int:
    return round(seconds * SECOND)


def to_time(at: int) -> datetime:
    return EPOCH + timedelta(microseconds=at)


def to_optional_time(at: int | None) -> datetime | None:
    return None if at is None else to_time(at)


def from_time(kind: str, value: object) -> int:
    if not isinstance(value, datetime):
        raise InvalidInput(f"{kind} must be a datetime with a time zone, not {type(value).__name__}: {shown(value)}")
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidInput(
            f"{kind} {value.isoformat()} has no time zone: use an aware datetime, such as datetime.now(UTC)"
        )
    return (value - EPOCH) // timedelta(microseconds=1)


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


def check_integer(kind: str, value: object, minimum: int, maximum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"{kind} must be a whole number, not {type(value).__name__}: {shown(value)}")
    if not minimum <= value <= maximum:
        raise InvalidInput(f"{kind} must be between {minimum} and {maximum}, not {shown(value)}")
    return value
