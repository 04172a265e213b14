"""Formats numbers, times and durations for people, and escapes text for HTML."""

from __future__ import annotations

import html
from datetime import datetime

from penstock.domain.control_characters import escape_controls

NOTHING = "–"


def safe(text: object) -> str:
    """Escape untrusted text for HTML."""
    return html.escape(escape_controls(str(text)), quote=True)


def number(value: float) -> str:
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}"
    return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"


def short(value: float) -> str:
    """A number for an axis: 1.2k, 3M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def share(part: float, whole: float) -> str:
    if not whole:
        return "0 %"
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "less than 0.1 %"
    return f"{percent:.0f} %" if percent >= 10 or percent == int(percent) else f"{percent:.1f} %"


def duration(seconds: float | None) -> str:
    """At most two units: 4 ms, 2.5 s, 3 min 20 s, 5 h, 9 d 3 h."""
    if seconds is None:
        return NOTHING
    if seconds < 0.00005:
        return "0 ms"
    if seconds < 0.00095:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds < 9.95 and round(seconds, 1) % 1 else f"{seconds:.0f} s"
    whole = round(seconds)
    for unit, length, smaller, part in (("d", 86_400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= length:
            rest = whole % length // part
            return f"{whole // length:,} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def every(seconds: float) -> str:
    """The name of a bucket width: second, minute, 5 minutes."""
    if seconds < 1:
        return f"{seconds:g} seconds"
    for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds % length == 0:
            count = round(seconds / length)
            return unit if count == 1 else f"{count} {unit}s"
    return f"{seconds} seconds"


def moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def period(begins: datetime, ends: datetime) -> str:
    if begins.date() == ends.date():
        return f"{begins:%Y-%m-%d}, {begins:%H:%M:%S} to {ends:%H:%M:%S} UTC"
    return f"{begins:%Y-%m-%d %H:%M} to {ends:%Y-%m-%d %H:%M} UTC"


def clock(at: datetime, seconds: float) -> str:
    """A time on an axis of the given length."""
    if seconds < 600:
        return f"{at:%H:%M:%S}"
    if seconds < 2 * 86_400:
        return f"{at:%H:%M}"
    return f"{at:%m-%d %H:%M}" if seconds < 7 * 86_400 else f"{at:%m-%d}"


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def reader_name(queue: str, group: str | None, several: bool) -> str:
    """The queue, with its group when there are several."""
    return f"{queue} / {group or 'nobody'}" if several else queue


def quoted(text: str, limit: int = 90) -> str:
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return f"“{cut}”"
