"""The charts of the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from penstock.domain.lifecycle import OUTCOMES
from penstock.spark.metrics import MINUTE
from penstock.spark.report.format import duration, number, plural, quoted, reader_name, share
from penstock.spark.report.summary import SHOWN_READERS, MetricPoint, Reader, Summary
from penstock.spark.report.svg import Line, Share, lines, stacked, strips

Key = tuple[str, str | None]
# Classes of the style sheet, in order of use.
COLOURS = ("c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8")
# Round durations for an axis.
DURATIONS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
             3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800)  # fmt: skip
SHARES = (("half within", "p50"), ("95 % within", "p95"), ("99 % within", "p99"))


class Chart(NamedTuple):
    """A chart: heading, caption, legend and SVG."""

    heading: str
    about: str
    legend: Sequence[tuple[str, str]]
    picture: str


def charts(summary: Summary) -> list[Chart]:
    times = timeline(summary)
    if not times:
        return []
    found = [_throughput(summary, times), _outcomes(summary)]
    found += [chart for chart in (_backlog(summary, times), _ages(summary, times)) if chart is not None]
    for reader in busiest(summary):
        found += _percentiles(summary, times, reader)
    if summary.failures:
        found.append(_failures(summary))
    if summary.workers:
        found.append(_workers(summary, times))
    return found


def timeline(summary: Summary) -> list[datetime]:
    """Every time bucket from the first to the last, including empty ones."""
    seen = [point.starts_at for points in summary.points.values() for point in points]
    if not seen:
        return []
    count = round((max(seen) - min(seen)).total_seconds() / summary.width_seconds) + 1
    return [min(seen) + timedelta(seconds=summary.width_seconds * place) for place in range(count)]


def busiest(summary: Summary) -> list[Reader]:
    """The readers with the most messages, each with a chart of its own."""
    active = [reader for reader in summary.readers if reader.deliveries]
    return sorted(active, key=lambda reader: (-reader.messages, reader.queue, reader.group or ""))[: SHOWN_READERS // 2]


def name_of(summary: Summary, key: Key) -> str:
    several = sum(reader.queue == key[0] for reader in summary.readers) > 1
    return reader_name(key[0], key[1], several)


def has_several_groups(summary: Summary) -> bool:
    """Whether some queue has more than one group, so that its messages end more than once."""
    return len(summary.readers) > len({reader.queue for reader in summary.readers})


def _counted(summary: Summary) -> str:
    if not has_several_groups(summary):
        return ""
    return ": sent counts each message once, the others count it in each group that reads it"


def _throughput(summary: Summary, times: list[datetime]) -> Chart:
    readers = _indexed(summary)
    # A message is sent once, however many groups read it: take the largest count among the groups of a queue.
    by_queue = [[points for key, points in readers.items() if key[0] == queue] for queue in summary.sent]
    sent = [sum(max((_at(one, time).sent for one in groups), default=0) for groups in by_queue) for time in times]
    succeeded = [sum(_at(points, time).succeeded for points in readers.values()) for time in times]
    dead = [sum(_at(points, time).dead for points in readers.values()) for time in times]
    # For short buckets show the rate per second.
    unit = "second" if summary.width_seconds < MINUTE else "minute"
    rate = (1 if unit == "second" else MINUTE) / summary.width_seconds
    drawn = [
        Line("sent", "sent", [rate * count for count in sent], filled=True),
        Line("succeeded", "good", [rate * count for count in succeeded]),
        Line("dead letters", "bad", [rate * count for count in dead]),
    ]
    return Chart(
        "Throughput",
        f"Messages per {unit}, all queues together{_counted(summary)}.",
        [(line.name, line.colour) for line in drawn],
        lines(times, summary.width_seconds, drawn, title="Throughput over time"),
    )


def _outcomes(summary: Summary) -> Chart:
    rows = []
    for reader in sorted(summary.readers, key=lambda one: -one.messages)[:SHOWN_READERS]:
        ended = sum(count for state, count in reader.outcomes.items() if state in OUTCOMES)
        parts = [
            Share(
                _state_name(state),
                _colour(state),
                count,
                f"{number(count)} ({share(count, reader.messages)})",
            )
            for state, count in sorted(reader.outcomes.items(), key=lambda pair: _order(pair[0]))
        ]
        detail = (
            f"{share(reader.outcomes.get('succeeded', 0), ended)} of {plural(ended, 'message')}"
            if ended
            else "none ended"
        )
        rows.append((name_of(summary, (reader.queue, reader.group)), detail, parts))
    states = sorted({state for reader in summary.readers for state in reader.outcomes}, key=_order)
    legend = [(_state_name(state), _colour(state)) for state in states]
    return Chart(
        "Outcomes",
        "How messages ended in each queue, and the share that succeeded.",
        legend,
        stacked(rows, title="Outcomes by queue"),
    )


def _order(state: str) -> int:
    places = [*(str(outcome) for outcome in OUTCOMES), "leased", "ready", "held"]
    return places.index(state) if state in places else len(places)


def _state_name(state: str) -> str:
    return {"lease_expired": "lease expired", "leased": "in flight", "ready": "waiting"}.get(state, state)


def _colour(state: str) -> str:
    return f"o-{state.replace('_', '-')}"


def _backlog(summary: Summary, times: list[datetime]) -> Chart | None:
    drawn = _by_reader(summary, times, lambda point: point.backlog)
    if not drawn:
        return None
    return Chart(
        "Backlog",
        "Messages that were sent and had not ended.",
        [(line.name, line.colour) for line in drawn],
        lines(times, summary.width_seconds, drawn, stepped=True, title="Backlog over time"),
    )


def _ages(summary: Summary, times: list[datetime]) -> Chart | None:
    drawn = _by_reader(summary, times, lambda point: point.oldest_age_seconds)
    if not drawn:
        return None
    return Chart(
        "Age of the oldest message",
        "How long the oldest message that had not ended had been there.",
        [(line.name, line.colour) for line in drawn],
        lines(
            times,
            summary.width_seconds,
            drawn,
            duration,
            steps=DURATIONS,
            stepped=True,
            title="Age of the oldest message over time",
        ),
    )


def _by_reader(summary: Summary, times: list[datetime], value: Callable[[MetricPoint], float | None]) -> list[Line]:
    """A line for each reader with a value, in the same colour in every chart."""
    points = _indexed(summary)
    found = [
        Line(
            name_of(summary, key), colour, [value(points[key][time]) if time in points[key] else None for time in times]
        )
        for key, colour in zip(_most_behind(summary), COLOURS, strict=False)
    ]
    return [line for line in found if any(line.values)]


def _most_behind(summary: Summary) -> list[Key]:
    """Readers by backlog, largest first."""
    most = {key: max((point.backlog for point in points), default=0) for key, points in summary.points.items()}
    return sorted(most, key=lambda key: (-most[key], name_of(summary, key)))[:SHOWN_READERS]


def _percentiles(summary: Summary, times: list[datetime], reader: Reader) -> list[Chart]:
    points = _indexed(summary).get((reader.queue, reader.group), {})
    name = name_of(summary, (reader.queue, reader.group))
    found = []
    for what, about in (
        ("waited", "From being ready to the first delivery, by when it was received."),
        ("processed", "Under lease, all attempts together, by when the message ended."),
    ):
        drawn = [
            Line(label, colour, [getattr(points[time], what)[place] if time in points else None for time in times])
            for place, (label, colour) in enumerate(SHARES)
        ]
        if not any(value is not None for line in drawn for value in line.values):
            continue
        heading = f"{'Waiting' if what == 'waited' else 'Processing'}: {name}"
        picture = lines(times, summary.width_seconds, drawn, duration, logarithmic=True, title=heading)
        found.append(Chart(heading, about, [(line.name, line.colour) for line in drawn], picture))
    return found


def _failures(summary: Summary) -> Chart:
    rows = []
    for failure in summary.failures[:SHOWN_READERS]:
        others = failure.failures - failure.dead
        parts = [
            Share("ended the message", "bad", failure.dead, number(failure.dead)),
            Share("tried again", "retry", others, number(others)),
        ]
        rows.append((f"{failure.queue}: {failure.pattern}", f"{failure.failures:,}×", parts))
    return Chart(
        "Failures",
        "The most frequent kinds of failure. Numbers, ids and quoted texts in them are blanked out.",
        [("ended the message", "bad"), ("tried again", "retry")],
        stacked(rows, title=f"Failures, the first {quoted(summary.failures[0].pattern)}"),
    )


def _workers(summary: Summary, times: list[datetime]) -> Chart:
    whole = max(1e-9, summary.width_seconds * len(times))
    rows = [
        (
            load.worker,
            f"busy {share(load.busy_seconds, whole)}, {plural(load.received, 'delivery', 'deliveries')}",
            load.utilisation,
        )
        for load in summary.workers[: 2 * SHOWN_READERS]
    ]
    return Chart(
        "Workers",
        "Darker where a worker had something in hand for more of the time.",
        [],
        strips(times, summary.width_seconds, rows, title="Workers over time"),
    )


_EMPTY = MetricPoint(datetime.min, 0, 0, 0, 0, 0, 0, (None, None, None), (None, None, None), 0, None)


def _indexed(summary: Summary) -> dict[Key, dict[datetime, MetricPoint]]:
    return {key: {point.starts_at: point for point in points} for key, points in summary.points.items()}


def _at(points: dict[datetime, MetricPoint], time: datetime) -> MetricPoint:
    return points.get(time, _EMPTY)
