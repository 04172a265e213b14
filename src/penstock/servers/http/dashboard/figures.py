"""Short forms of numbers, rates, durations, sizes and times; None is a dash."""

from __future__ import annotations

from datetime import UTC, datetime

NONE = "–"
KIBI = 1024


def count(number: int | None) -> str:
    return NONE if number is None else f"{number:,}"


def short_count(number: int) -> str:
    """For a chart or a small tile: three digits."""
    for limit, letter in ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k")):
        if abs(number) >= limit:
            return f"{number / (1000 if letter == 'k' else limit):.3g}{letter}"
    return f"{number:,}"


def rate(per_second: float | None) -> str:
    """A rate per second; slow ones per minute or hour."""
    if per_second is None:
        return NONE
    if per_second == 0:
        return "0/s"
    for factor, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if per_second * factor >= 1 or unit == "h":
            number = per_second * factor
            return f"{number:,.0f}/{unit}" if number >= 100 else f"{number:.3g}/{unit}"
    raise AssertionError("the last unit takes everything")


def duration(seconds: float | None) -> str:
    if seconds is None:
        return NONE
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, smaller, smaller_unit in ((86_400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size:,} {unit}" + (f" {rest} {smaller_unit}" if rest else "")
    return f"{whole} s"


def size(byte_count: int | None) -> str:
    if byte_count is None:
        return NONE
    if byte_count < KIBI:
        return "1 byte" if byte_count == 1 else f"{byte_count} bytes"
    number, units = byte_count / KIBI, iter(("KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    while number >= KIBI and unit != "TiB":
        number, unit = number / KIBI, next(units)
    return f"{number:.3g} {unit}" if number < 1000 else f"{number:,.0f} {unit}"


def moment(at: datetime | None) -> str:
    """To the millisecond, in UTC: events beside it may be of the same second."""
    if at is None:
        return NONE
    at = at.astimezone(UTC)
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d}"


def second(at: datetime | None) -> str:
    return NONE if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def clock(at: datetime | None) -> str:
    return NONE if at is None else f"{at.astimezone(UTC):%H:%M:%S}.{at.microsecond // 1000:03d}"


def ago(at: datetime | None, now: datetime) -> str:
    if at is None:
        return NONE
    seconds = (now - at).total_seconds()
    return f"{duration(seconds)} ago" if seconds >= 0 else f"in {duration(-seconds)}"


def plural(number: int, noun: str, several: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else several or noun + 's'}"
