"""A sparkline of the backlog of the last minutes, as two lists of points for an SVG."""

from __future__ import annotations

from typing import NamedTuple

from penstock.servers.http.dashboard.series import Series

WIDTH, HEIGHT, EDGE = 120, 28, 2
SECONDS = 300.0
STEPS = 60


class Spark(NamedTuple):
    line: str
    area: str
    peak: int


def spark(series: Series) -> Spark:
    last = series.recent.last
    if last is None:
        return Spark("", "", 0)
    # The latest point of each step, to keep the SVG small.
    steps: dict[int, float] = {}
    for point in series.recent.points():
        step = STEPS - int((last.at - point.at) / SECONDS * STEPS)
        if step >= 0:
            steps[step] = point.waiting
    peak = max(steps.values())
    places = [(step * WIDTH / STEPS, _height(waiting, peak)) for step, waiting in sorted(steps.items())]
    if len(places) == 1:
        places.insert(0, (places[0][0] - WIDTH / STEPS, places[0][1]))
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    area = f"{places[0][0]:.1f},{HEIGHT} {line} {places[-1][0]:.1f},{HEIGHT}"
    return Spark(line, area, int(peak))


def _height(waiting: float, peak: float) -> float:
    return HEIGHT - EDGE - (waiting / peak * (HEIGHT - 2 * EDGE) if peak else 0)
