"""The report: its sentences, escaping of names and errors, and no external resources."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest

from penstock.spark.failures import BY_ITSELF
from penstock.spark.report.charts import charts
from penstock.spark.report.findings import findings
from penstock.spark.report.format import duration, every, share
from penstock.spark.report.page import page
from penstock.spark.report.summary import (
    FailureKind,
    MetricPoint,
    Poison,
    Reader,
    Summary,
    WorkerLoad,
    width_for,
)
from penstock.spark.report.svg import Line, lines, nice_step

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NASTY = '<script>alert("x")</script>\x1b[31m\u202e&\'"\x00'
NO_TIMES = (None, None, None)


def point(place: int, **values: Any) -> MetricPoint:
    empty = {name: 0 for name in ("sent", "received", "settled", "retried", "succeeded", "dead", "backlog")}
    times = {"waited": (0.1, 0.4, 0.9), "processed": NO_TIMES, "oldest_age_seconds": None}
    return MetricPoint(**{"starts_at": NOON + timedelta(minutes=place), **empty, **times, **values})


def failure(**values: Any) -> FailureKind:
    given: dict[str, Any] = {
        "queue": "orders",
        "group": "default",
        "fingerprint": "abc",
        "pattern": "order <n> timed out",
        "example": "order 17 timed out",
        "failures": 24,
        "messages": 3,
        "dead": 3,
        "most_failures": 8,
        "repeated": 3,
        "first_at": NOON,
        "last_at": NOON,
    }
    return FailureKind(**{**given, **values})


def summary(**values: Any) -> Summary:
    given: dict[str, Any] = {
        "store": "sqlite:///app.db",
        "made_at": NOON,
        "begins_at": NOON,
        "ends_at": NOON + timedelta(minutes=5),
        "width_seconds": 60,
        "sent": {"orders": 100},
        "readers": [
            Reader("orders", "default", {"succeeded": 97, "failed": 3}, (0.1, 0.4, 0.9), (0.01, 0.02, 0.03), 121)
        ],
        "points": {("orders", "default"): [point(place, sent=20, received=24, succeeded=19) for place in range(5)]},
        "failures": [],
        "poison": [],
        "workers": [],
        "more": {"failures": 0, "poison": 0, "workers": 0},
    }
    return Summary(**{**given, **values})


def sentences(**values: Any) -> list[str]:
    return [one.sentence for one in findings(summary(**values))]


def test_finding_for_poison_messages() -> None:
    found = sentences(failures=[failure()])
    assert "3 messages of orders failed 8 times with the same error: “order <n> timed out”." in found


def test_finding_for_an_error_has_both_counts() -> None:
    found = sentences(failures=[failure(repeated=1, messages=6, failures=20, dead=1)])
    told = "1 message of orders failed 8 times with the same error: “order <n> timed out”. "
    assert f"{told}In all it happened 20 times to 6 messages, and 1 ended that way." in found


def test_finding_for_live_messages_comes_first() -> None:
    readers = [Reader("orders", "default", {"succeeded": 90, "ready": 8, "leased": 2}, (0.1, 0.1, 0.1), NO_TIMES, 92)]
    points = {("orders", "default"): [point(place, backlog=10, oldest_age_seconds=300.0) for place in range(5)]}
    first = sentences(readers=readers, points=points)[0]
    assert first == (
        "100 messages in 1 queue were sent; 10 have not ended yet, most of them in orders. The oldest is 5 min old."
    )


def test_finding_for_live_messages_of_several_groups_says_how_it_counts() -> None:
    readers = [Reader("orders", group, {"succeeded": 40, "ready": 60}, NO_TIMES, NO_TIMES, 40) for group in ("a", "b")]
    points = {("orders", group): [point(place, backlog=60) for place in range(5)] for group in ("a", "b")}
    assert sentences(readers=readers, points=points)[0].startswith(
        "100 messages in 1 queue were sent; 120 have not ended yet (counted in each group), most of them in orders"
    )


def test_finding_for_an_outage() -> None:
    readers = [Reader("orders", "default", {"succeeded": 90, "ready": 10}, (0.1, 0.1, 0.1), NO_TIMES, 90)]
    points = [point(0, received=90, backlog=0), *(point(place, backlog=10) for place in range(1, 5))]
    points[-1] = point(4, backlog=10, oldest_age_seconds=240.0)
    told = "Nothing was received from orders since 12:00:00 UTC, though 10 messages are ready; the oldest is 4 min old."
    assert told in sentences(readers=readers, points={("orders", "default"): points})
    working = [point(place, received=20, backlog=10, oldest_age_seconds=240.0) for place in range(5)]
    assert told not in sentences(readers=readers, points={("orders", "default"): working})


def test_findings_for_failures_retries_backlog_and_vanished_consumers() -> None:
    points = {
        ("orders", "default"): [
            point(place, received=40, settled=40, retried=30 if place == 3 else 0, backlog=10 + 30 * place)
            for place in range(5)
        ]
    }
    readers = [Reader("orders", "default", {"succeeded": 80, "expired": 20}, (2.0, 2.1, 2.2), NO_TIMES, 100)]
    lost = failure(pattern=next(iter(BY_ITSELF.values())), failures=25, messages=25, dead=0, most_failures=1)
    found = "\n".join(sentences(points=points, readers=readers, failures=[lost]))
    for told in (
        "20 % of the messages that ended in orders did not succeed: 20 of 100.",
        "A retry storm in orders: once at least half of the deliveries that ended within a minute had to be tried "
        "again, worst at 12:03:00 UTC (75 % of 40).",
        "The backlog of orders is growing: 70 in the middle of the time, 130 at its end.",
        "25 deliveries of orders ended because the consumer vanished or was too slow; others took over.",
        "20 messages of orders had not been handled when their time was over.",
        "Messages waited: about 2 s.",
    ):
        assert told in found


def test_groups_are_named_where_a_queue_has_several() -> None:
    readers = [Reader("orders", group, {"failed": 1}, NO_TIMES, NO_TIMES, 1) for group in ("billing", None)]
    found = "\n".join(sentences(readers=readers))
    assert "orders / billing" in found
    assert "orders / nobody" in found


def test_a_group_has_the_same_colour_in_every_plot() -> None:
    """Billing has the larger backlog, packing the older messages."""
    points = {
        ("orders", "packing"): [point(place, backlog=3, oldest_age_seconds=900.0) for place in range(3)],
        ("orders", "billing"): [point(place, backlog=70, oldest_age_seconds=20.0) for place in range(3)],
    }
    readers = [Reader("orders", group, {}, NO_TIMES, NO_TIMES, 0) for group in ("packing", "billing")]
    legends = {chart.heading: list(chart.legend) for chart in charts(summary(points=points, readers=readers))}
    assert legends["Backlog"] == [("orders / billing", "c1"), ("orders / packing", "c2")]
    assert legends["Age of the oldest message"] == legends["Backlog"]


def test_captions_state_what_is_counted_per_group() -> None:
    readers = [Reader("orders", group, {"succeeded": 5}, NO_TIMES, NO_TIMES, 5) for group in ("billing", "packing")]
    points = {("orders", "billing"): [point(place, sent=1, succeeded=1) for place in range(3)]}
    several = page(summary(sent={"orders": 5}, readers=readers, points=points))
    assert "<span>Sent</span><strong>5</strong><small>each message once, in 1 queue</small>" in several
    told = "<strong>10</strong><small>100 % of all endings, counted in each group</small>"
    assert f"<span>Succeeded</span>{told}" in several
    assert "sent counts each message once, the others count it in each group" in several
    alone = page(summary(sent={"orders": 5}, readers=readers[:1], points=points))
    assert "<span>Sent</span><strong>5</strong><small>in 1 queue</small>" in alone
    assert "in each group" not in alone


def test_an_empty_lake_has_a_report_too() -> None:
    empty = summary(begins_at=None, ends_at=None, sent={}, readers=[], points={})
    assert findings(empty)[0].sentence.startswith("Nothing has happened yet")
    assert charts(empty) == []
    assert "No messages yet" in page(empty)


class Checker(HTMLParser):
    """Parses the page: its elements, and whether each is closed."""

    VOID = ("meta",)

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_names_and_errors_are_data_and_the_page_needs_nothing_else() -> None:
    nasty = summary(
        store=NASTY,
        sent={NASTY: 3},
        readers=[Reader(NASTY, NASTY, {"succeeded": 1, "rejected": 2}, (1.0, 2.0, 3.0), (1.0, 2.0, 3.0), 3)],
        points={(NASTY, NASTY): [point(place, sent=1, backlog=1, oldest_age_seconds=1.0) for place in range(3)]},
        failures=[failure(queue=NASTY, group=NASTY, pattern=NASTY, example=NASTY)],
        poison=[Poison(NASTY, NASTY, NASTY, NASTY, 8, "failed", NOON)],
        workers=[WorkerLoad(NASTY, 3, 1, 2, 4.0, 8.0, {NOON: 0.5})],
    )
    made = page(nasty)
    checker = Checker()
    checker.feed(made)
    assert checker.open == []
    tags = {tag for tag, _ in checker.seen}
    assert not tags & {"script", "iframe", "object", "link", "img", "form", "base"}
    for _, attributes in checker.seen:
        assert not {name for name in attributes if name.startswith("on") or name in ("src", "href", "style")}
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", made)
    assert "http" not in made.replace("http-equiv", "")
    assert made.count("&lt;script&gt;") >= 10


def test_axes_are_round_and_lines_have_gaps() -> None:
    assert [nice_step(value) for value in (0.0003, 1, 1.1, 4, 700)] == [pytest.approx(0.0005), 1, 2, 5, 1000]
    times = [NOON + timedelta(minutes=place) for place in range(4)]
    picture = lines(times, 60, [Line("one", "c1", [1, 2, None, 4])])
    assert picture.count("<polyline") == 1
    assert picture.count("<circle") == 1
    assert "12:00:00" in picture
    logarithmic = lines(times, 60, [Line("one", "c1", [0.0, 0.002, 70.0, None])], duration, logarithmic=True)
    assert "10 s" in logarithmic


@pytest.mark.parametrize("tenths", range(11, 61))
def test_times_under_an_axis_lie_within_it_and_do_not_touch(tenths: int) -> None:
    begin = NOON + timedelta(seconds=0.7)
    times = [begin + timedelta(seconds=place / 10) for place in range(tenths)]
    picture = lines(times, 0.1, [Line("one", "c1", [1] * tenths)])
    labels = re.findall(r'x="([0-9.]+)" y="[0-9.]+" text-anchor="(start|middle|end)">(12:00:[0-9.]+)<', picture)
    width = 52
    ends = [float(x) + {"start": width, "middle": width / 2, "end": 0}[anchor] for x, anchor, _ in labels]
    assert labels
    assert max(told for _, _, told in labels) <= f"{times[-1] + timedelta(seconds=0.1):%H:%M:%S}"
    assert all(later - width >= earlier for earlier, later in itertools.pairwise(ends))
    assert max(ends) <= 480


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (None, "–"), (0, "0 ms"), (0.0003, "0.3 ms"), (0.0123, "12 ms"), (0.9996, "1 s"), (2.54, "2.5 s"),
        (59.96, "1 min"), (200, "3 min 20 s"), (18_000, "5 h"), (788_400, "9 d 3 h"),
    ],
)  # fmt: skip
def test_durations_in_words(seconds: float | None, told: str) -> None:
    assert duration(seconds) == told


def test_shares_and_stretches_in_words() -> None:
    assert [share(part, 1000) for part in (0, 0.5, 12, 120, 999)] == [
        "0 %",
        "less than 0.1 %",
        "1.2 %",
        "12 %",
        "100 %",
    ]
    assert [every(width) for width in (0.2, 1, 60, 300, 86_400)] == [
        "0.2 seconds",
        "second",
        "minute",
        "5 minutes",
        "day",
    ]
    assert [width_for(seconds) for seconds in (3, 60, 3600, 30 * 86_400)] == [0.1, 1, 60, 86_400]
