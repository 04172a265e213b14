"""Charts as SVG. Colours come from the style sheet of the page, for light and dark mode. All text goes through `safe`.

A chart is 480 wide: its width on a screen, and its text stays readable on a phone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from penstock.spark.report.format import clock, moment, safe, short

WIDTH, HEIGHT = 480, 210
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 10, 24
TIME_TICKS = 5
TIME_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800,
              604_800, 1_209_600, 2_592_000)  # fmt: skip
# Half a label: nearer to the edge it would be cut.
LABEL_ROOM = 26
LABEL_MARGIN = 4
Values = Sequence[float | None]


class Line(NamedTuple):
    name: str
    colour: str  # a class of the style sheet
    values: Values
    filled: bool = False


class Axis(NamedTuple):
    """A vertical axis: maps values to heights, and has the labels."""

    place: Callable[[float], float]
    ticks: list[float]
    label: Callable[[float], str]


def lines(
    times: Sequence[datetime],
    width_seconds: float,
    series: Sequence[Line],
    label: Callable[[float], str] = short,
    *,
    steps: Sequence[float] = (),
    logarithmic: bool = False,
    stepped: bool = False,
    title: str = "",
) -> str:
    """A line chart with one value for each bucket and a gap where there is none."""
    shown = [value for line in series for value in line.values if value is not None]
    axis = _logarithmic(shown, label) if logarithmic else _linear(shown, label, steps)
    across = _across(times)
    parts = [_grid(axis), _time_labels(times, width_seconds, across, HEIGHT - 7)]
    parts += [_drawn(line, across, axis, stepped) for line in series]
    parts.append(_hovers(times, series, across, label))
    return _svg(parts, HEIGHT, title)


def _drawn(line: Line, across: Callable[[float], float], axis: Axis, stepped: bool) -> str:
    drawn = []
    for run in _runs(line.values):
        points = [(across(index + 0.5), axis.place(value)) for index, value in run]
        if stepped:
            points = [(across(index + side), axis.place(value)) for index, value in run for side in (0, 1)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        if line.filled:
            ground = HEIGHT - BOTTOM
            area = f"{points[0][0]:.1f},{ground} {path} {points[-1][0]:.1f},{ground}"
            drawn.append(f'<polygon class="area {line.colour}" points="{area}"/>')
        if len(points) == 1:
            drawn.append(f'<circle class="dot {line.colour}" cx="{points[0][0]:.1f}" cy="{points[0][1]:.1f}" r="3"/>')
        else:
            drawn.append(f'<polyline class="line {line.colour}" points="{path}"/>')
    return "".join(drawn)


def _runs(values: Values) -> list[list[tuple[int, float]]]:
    """Runs of values without a gap."""
    runs: list[list[tuple[int, float]]] = [[]]
    for index, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((index, value))
    return [run for run in runs if run]


def _hovers(
    times: Sequence[datetime],
    series: Sequence[Line],
    across: Callable[[float], float],
    label: Callable[[float], str],
) -> str:
    """Tooltips of the buckets."""
    drawn = []
    for index, time in enumerate(times):
        detail = [f"{line.name}: {label(line.values[index] or 0)}" for line in series if line.values[index] is not None]
        if detail:
            x, wide = across(index), across(index + 1) - across(index)
            text = "&#10;".join(safe(one) for one in (moment(time), *detail))
            drawn.append(
                f'<rect class="hover" x="{x:.1f}" y="{TOP}" width="{max(wide, 0.5):.1f}" '
                f'height="{HEIGHT - TOP - BOTTOM}"><title>{text}</title></rect>'
            )
    return "".join(drawn)


# -- axes ----------------------------------------------------------------------------------------------------------


def _across(times: Sequence[datetime]) -> Callable[[float], float]:
    """Maps the index of a bucket to a horizontal position."""
    wide = (WIDTH - LEFT - RIGHT) / max(1, len(times))
    return lambda index: LEFT + wide * index


def _linear(values: Sequence[float], label: Callable[[float], str], steps: Sequence[float]) -> Axis:
    most = max(values, default=0) or 1
    step = next((one for one in steps if one * 4 >= most), None) or nice_step(most / 4)
    count = math.ceil(most / step - 1e-9)
    top = step * count
    return Axis(lambda value: _height(value / top), [step * number for number in range(count + 1)], label)


def _logarithmic(values: Sequence[float], label: Callable[[float], str]) -> Axis:
    """A logarithmic axis with round ends. Values below a tenth of a millisecond are drawn as that."""
    least = 1e-4
    positive = [max(value, least) for value in values] or [1e-3, 1]
    low, high = nice_step(min(positive) / 2.5), nice_step(max(positive))
    if high < 9.9 * low:
        low = high / 10
    span = math.log10(high / low)
    return Axis(
        lambda value: _height(math.log10(max(value, low) / low) / span), _logarithmic_ticks(low, high, span), label
    )


def _logarithmic_ticks(low: float, high: float, span: float) -> list[float]:
    digits = (1, 2, 5) if span <= 1.5 else (1, 3) if span <= 2.5 else (1,)
    skip = max(1, round(span / 5))
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [digit * 10.0**power for power in powers if power % skip == 0 for digit in digits]
    return [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]


def nice_step(rough: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough * (1 - 1e-9))


def _height(part: float) -> float:
    return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)


def _grid(axis: Axis) -> str:
    drawn = []
    for tick in axis.ticks:
        y = axis.place(tick)
        drawn.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(
            f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{safe(axis.label(tick))}</text>'
        )
    return "".join(drawn)


def _time_labels(times: Sequence[datetime], width_seconds: float, across: Callable[[float], float], y: float) -> str:
    """Labels at round times, as far as they fit."""
    if not times:
        return ""
    whole = width_seconds * len(times)
    step = next((one for one in TIME_STEPS if whole / one <= TIME_TICKS), TIME_STEPS[-1])
    first = math.ceil(times[0].timestamp() / step) * step
    drawn = []
    for tick in range(first, math.floor(times[0].timestamp() + whole) + 1, step):
        x = across((tick - times[0].timestamp()) / width_seconds)
        anchor = "start" if x < LABEL_ROOM else "end" if x > WIDTH - LABEL_ROOM else "middle"
        x = min(x, WIDTH - LABEL_MARGIN)
        label = clock(datetime.fromtimestamp(tick, times[0].tzinfo), whole)
        drawn.append(f'<text class="tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{safe(label)}</text>')
    return "".join(drawn)


# -- bars and strips -----------------------------------------------------------------------------------------------


class Share(NamedTuple):
    name: str
    colour: str
    value: float
    detail: str


def stacked(rows: Sequence[tuple[str, str, Sequence[Share]]], title: str = "") -> str:
    """A stacked bar for each row, with its label and total above."""
    most = max((sum(part.value for part in parts) for _, _, parts in rows), default=0) or 1
    tall, drawn = 40, []
    for place, (name, detail, parts) in enumerate(rows):
        y = place * tall
        drawn.append(_row_labels(y, name, detail))
        x = 0.0
        for part in parts:
            wide = WIDTH * part.value / most
            if part.value:
                drawn.append(
                    f'<rect class="bar {part.colour}" x="{x:.1f}" y="{y + 19}" width="{max(wide, 1.5):.1f}" '
                    f'height="12" rx="2"><title>{safe(f"{part.name}: {part.detail}")}</title></rect>'
                )
            x += wide
    return _svg(drawn, max(1, len(rows)) * tall, title)


def strips(
    times: Sequence[datetime],
    width_seconds: float,
    rows: Sequence[tuple[str, str, dict[datetime, float]]],
    title: str = "",
) -> str:
    """A strip for each row, darker for larger values."""
    tall = 38
    wide = WIDTH / max(1, len(times))
    drawn = []
    for place, (name, detail, parts) in enumerate(rows):
        y = place * tall
        drawn.append(_row_labels(y, name, detail))
        drawn.append(f'<rect class="track" x="0" y="{y + 19}" width="{WIDTH}" height="11" rx="2"/>')
        for index, time in enumerate(times):
            value = parts.get(time, 0)
            if value > 0.001:
                text = safe(f"{moment(time)}: {value:.0%} busy")
                drawn.append(
                    f'<rect class="bar busy" x="{wide * index:.1f}" y="{y + 19}" width="{wide + 0.2:.1f}" height="11" '
                    f'opacity="{0.15 + 0.85 * value:.2f}"><title>{text}</title></rect>'
                )
    height = max(1, len(rows)) * tall
    drawn.append(_time_labels(times, width_seconds, lambda index: wide * index, height + 10))
    return _svg(drawn, height + 16, title)


def _row_labels(y: float, name: str, detail: str) -> str:
    return (
        f'<text class="name" x="0" y="{y + 13}">{safe(_cut(name, 46))}</text>'
        f'<text class="detail" x="{WIDTH}" y="{y + 13}" text-anchor="end">{safe(detail)}</text>'
    )


def _cut(name: str, limit: int) -> str:
    return name if len(name) <= limit else name[: limit - 1] + "…"


def _svg(parts: Sequence[str], height: float, title: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{safe(title)}">{"".join(parts)}</svg>'
