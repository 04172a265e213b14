"""What pages are made from: payloads, figures, series, sparklines, lists."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.domain.control_characters import escape_controls
from penstock.domain.message import JSON
from penstock.domain.results import GroupStats
from penstock.servers.http.dashboard import figures
from penstock.servers.http.dashboard.payloads import SHOWN_BYTES, payload_view, preview
from penstock.servers.http.dashboard.series import RATE_SECONDS, Point, Ring, Series, chart_rows, latest_row, point
from penstock.servers.http.dashboard.sparkline import spark

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def _text_of(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", markup))


@settings(max_examples=40)
@given(VALUES)
def test_laid_out_json_is_the_same_json(value: Any) -> None:
    payload = msgspec.json.encode(value)
    view = payload_view(payload, JSON)
    shown = _text_of(str(view.markup))
    assert "<" not in re.sub(r'</?span( class="json-[a-z]+")?>', "", str(view.markup))
    # What cannot be seen is spelled out, which JSON has no spelling for.
    if view.kind == "json" and escape_controls(payload.decode()) == payload.decode():
        assert msgspec.json.decode(shown) == msgspec.json.decode(payload)


@settings(max_examples=40)
@given(st.binary(max_size=300), st.sampled_from([JSON, "text/plain", "application/octet-stream"]))
def test_no_payload_breaks_the_viewer(payload: bytes, content_type: str) -> None:
    view = payload_view(payload, content_type)
    assert view.is_whole
    assert view.size == len(payload)
    assert not re.search(r"<(?!/?span)", str(view.markup))
    assert "\n" not in preview(payload)


def test_a_cut_goes_around_characters() -> None:
    view = payload_view("ü".encode() * SHOWN_BYTES, "text/plain")
    assert (view.kind, view.is_whole) == ("text", False)
    assert set(str(view.markup)) == {"ü"}


def test_values_side_by_side_do_not_run_together() -> None:
    assert _text_of(str(payload_view(b"1 2", JSON).markup)) == "1 2"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "–"), (0.0123, "12 ms"), (0.5, "0.5 s"), (9.94, "9.9 s"), (59.4, "59 s"), (60, "1 m"), (61, "1 m 1 s"),
     (3599.6, "1 h"), (7260, "2 h 1 m"), (90_000, "1 d 1 h")],
)  # fmt: skip
def test_durations(seconds: float | None, shown: str) -> None:
    assert figures.duration(seconds) == shown


@pytest.mark.parametrize(
    ("per_second", "shown"),
    [(None, "–"), (0, "0/s"), (1234.5, "1,234/s"), (12.34, "12.3/s"), (0.5, "30/min"), (0.001, "3.6/h")],
)
def test_rates(per_second: float | None, shown: str) -> None:
    assert figures.rate(per_second) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 bytes"), (1, "1 byte"), (1023, "1023 bytes"), (1024, "1 KiB"), (16 << 20, "16 MiB")]
)
def test_sizes(count: int, shown: str) -> None:
    assert figures.size(count) == shown


def test_times_before_and_after() -> None:
    now = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
    assert figures.ago(now - timedelta(seconds=90), now) == "1 m 30 s ago"
    assert figures.ago(now + timedelta(hours=2), now) == "in 2 h"


NO_STATS = GroupStats(0, 0, 0, 0, 0, 0, 0, 0, None, 0, {})


def _stats(**counts: int) -> GroupStats:
    outcomes = {"succeeded": counts.pop("succeeded", 0), "failed": counts.pop("failed", 0)}
    endings = dict(outcomes)
    return msgspec.structs.replace(NO_STATS, **counts, done=outcomes["succeeded"], outcomes=outcomes, endings=endings)


def test_rates_follow_from_counters() -> None:
    series = Series()
    for second in range(11):
        counts = {"available": 100 - second * 3, "succeeded": second * 4, "failed": second}
        series.add(point(second, _stats(**counts, failed_attempts=2 * second)))
    rates = series.rates()
    # Five end in a second and three fewer wait, so two came in; two attempts fail.
    assert (rates.sent, rates.finished, rates.failed) == (2, 5, 2)
    assert (series.grown("failed"), series.grown("died")) == (20, 10)
    assert series.drain_seconds() == pytest.approx(70 / 3)


def test_a_flush_gives_no_rate_below_zero() -> None:
    series = Series()
    series.add(point(0, _stats(available=50, succeeded=900)))
    series.add(point(1, _stats()))
    assert series.rates().sent == 0
    assert series.drain_seconds() == 0


def _point(at: float, finished: float = 0) -> Point:
    return Point(at, 0, 0, 0, 0, 0, 0, finished, 0, 0)


@pytest.mark.parametrize("apart", [1, 10, 45])
def test_a_ring_keeps_the_points_of_its_time_however_far_apart(apart: int) -> None:
    ring = Ring(300, 0.5)
    for at in range(0, 5_000, apart):
        ring.add(_point(at))
    kept = [one.at for one in ring.points()]
    assert kept == [at for at in range(0, 5_000, apart) if at >= kept[-1] - 300]
    found = ring.back(10)
    assert found is not None
    assert found.at == kept[-1] - max(10, apart)


def test_points_that_come_too_close_are_left_out() -> None:
    ring = Ring(300, 0.5)
    for tenth in range(21):
        ring.add(_point(tenth / 10))
    assert [one.at for one in ring.points()] == [0, 0.5, 1, 1.5, 2]


def test_a_clock_that_was_set_back_begins_anew() -> None:
    ring = Ring(300, 0.5)
    for at in (1_000, 1_001, 400, 401):
        ring.add(_point(at))
    assert [one.at for one in ring.points()] == [400, 401]


def test_a_chart_has_the_same_rates_whoever_watches() -> None:
    """Ten finish in a second. Looked at every ten seconds, then every second, with a page opened in between."""
    ring = Ring(300, 0.5)
    moments = [*range(0, 100, 10), *range(100, 130), 130.5, *range(131, 150)]
    for at in moments:
        ring.add(_point(at, finished=10 * at))
    rates = [row[5] for row in chart_rows(ring)]
    assert rates[0] is None, "one look has no rate"
    assert rates[1:] == [pytest.approx(10)] * (len(moments) - 1)
    latest = latest_row(ring)
    assert latest is not None
    assert latest[5] == pytest.approx(10)


def test_a_chart_has_no_rates_of_a_moment() -> None:
    ring = Ring(300, 0.5)
    for half in range(int(2 * RATE_SECONDS)):
        ring.add(_point(half / 2, finished=half))
    assert {row[5] for row in chart_rows(ring)} == {None}


def test_a_line_is_interrupted_where_nobody_could_look() -> None:
    ring = Ring(300, 0.5)
    for at in (0, 10, 200, 210):
        ring.add(_point(at))
    rows = chart_rows(ring)
    assert [row[0] for row in rows] == [0, 10, 10.001, 200, 210]
    assert rows[2][1:] == [None] * 6


def test_a_sparkline_stays_in_its_box() -> None:
    series = Series()
    for second in range(600):
        series.add(point(second, _stats(available=second % 37)))
    one = spark(series)
    places = [tuple(map(float, pair.split(","))) for pair in one.line.split()]
    assert all(0 <= x <= 120 and 0 <= y <= 28 for x, y in places)
    assert len(places) <= 61
    assert one.peak == 36
