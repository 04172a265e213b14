"""Timestamps. Penstock stores a time as an integer of microseconds since 1970 (UTC), which every engine compares and
keeps exactly; the public API takes and returns aware `datetime` values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

SECOND = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What a `datetime` in UTC can represent: with another offset it can lie hours outside, and could not be returned.
EARLIEST, LATEST = (
    (end.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) for end in (datetime.min, datetime.max)
)


def microseconds(seconds: float) -> int:
    return round(seconds * SECOND)


def to_time(at: int) -> datetime:
    """A stored time as a `datetime`; the nearest one when an earlier version stored a time beyond the bounds, because
    a message with such a time must not stop its readers."""
    try:
        return EPOCH + timedelta(microseconds=at)
    except OverflowError:
        return EPOCH + timedelta(microseconds=min(max(at, EARLIEST), LATEST))


def to_optional_time(at: int | None) -> datetime | None:
    return None if at is None else to_time(at)
