"""Cron rules: ticks, daylight saving changes, and catch-up."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.errors import InvalidInput, InvalidSchedule
from penstock.domain.recurrence import (
    MAX_CATCH_UP,
    PROMPT_SECONDS,
    check_catch_up,
    check_cron,
    due_ticks,
    last_tick,
    next_tick,
    ticks,
)
from penstock.domain.timestamps import to_time
from penstock.domain.validation import from_time

BERLIN = "Europe/Berlin"
ZONES = ["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia"]
RULES = [
    "* * * * *",
    "*/7 * * * *",
    "30 2 * * *",
    "0 0 * * *",
    "0 9 * * 1-5",
    "15 3 29 2 *",
    "0 12 1 */3 *",
    "59 23 31 12 *",
]


def moment(text: str) -> int:
    return from_time("moment", datetime.fromisoformat(text).replace(tzinfo=UTC))


def shown(tick: int, zone: str = "UTC") -> str:
    return to_time(tick).astimezone(ZoneInfo(zone)).strftime("%m-%d %H:%M")


moments = st.datetimes(datetime(2020, 1, 1), datetime(2045, 1, 1), timezones=st.just(UTC)).map(
    lambda at: from_time("at", at)
)


@given(rule=st.sampled_from(RULES), zone=st.sampled_from(ZONES), after=moments)
def test_the_next_tick_is_always_later_and_ticks_only_go_forward(rule: str, zone: str, after: int) -> None:
    several = [after, *islice(ticks(rule, zone, after), 5)]
    assert several == sorted(set(several))
    assert next_tick(rule, zone, after) == several[1]


@given(rule=st.sampled_from(RULES), zone=st.sampled_from(ZONES), after=moments)
def test_no_tick_lies_between_a_time_and_its_next_tick(rule: str, zone: str, after: int) -> None:
    tick = next_tick(rule, zone, after)
    assert next_tick(rule, zone, tick - 1) == tick
    between = after + (tick - after) // 2
    assert next_tick(rule, zone, between) == tick or between >= tick


@given(rule=st.sampled_from(RULES), zone=st.sampled_from(ZONES), after=moments, late=st.integers(0, 40 * 86_400))
def test_the_last_tick_is_the_latest_in_the_past(rule: str, zone: str, after: int, late: int) -> None:
    earliest = next_tick(rule, zone, after)
    now = earliest + late * 1_000_000
    last = last_tick(rule, zone, earliest, now)
    assert earliest <= last <= now
    assert next_tick(rule, zone, last) > now


@given(
    rule=st.sampled_from(["* * * * *", "*/7 * * * *", "30 2 * * *", "0 9 * * 1-5"]),
    zone=st.sampled_from(ZONES),
    after=moments,
    late=st.integers(0, 6 * 86_400) | st.integers(0, 100),
    catch_up=st.sampled_from(["skip", "one", "all"]),
)
def test_due_ticks_are_in_order_and_none_is_in_the_future(
    rule: str, zone: str, after: int, late: int, catch_up: Any
) -> None:
    next_at = next_tick(rule, zone, after)
    now = next_at + late * 1_000_000
    due, following = due_ticks(rule, zone, next_at, now, catch_up)
    assert due == sorted(set(due))
    assert all(next_at <= tick <= now for tick in due)
    assert following > max(due, default=next_at)
    assert following > now or (catch_up == "all" and len(due) == MAX_CATCH_UP)
    if catch_up == "all":
        assert due[0] == next_at
        assert [*due[1:], following] == list(islice(ticks(rule, zone, next_at), len(due)))
    else:
        newest = last_tick(rule, zone, next_at, now)
        assert due == ([newest] if catch_up == "one" or now - newest <= PROMPT_SECONDS * 1_000_000 else [])


def test_a_tick_at_the_current_time_is_due() -> None:
    at = moment("2026-03-05T08:20:00")
    assert last_tick("*/20 * * * *", "UTC", moment("2026-03-05T07:20:00"), at) == at
    assert next_tick("*/20 * * * *", "UTC", at) == moment("2026-03-05T08:40:00")


def test_catch_up_of_a_long_gap_is_split_into_passes() -> None:
    next_at = moment("2026-03-05T00:00:00")
    now = moment("2026-03-06T00:00:00")
    first, following = due_ticks("* * * * *", "UTC", next_at, now, "all")
    second, end = due_ticks("* * * * *", "UTC", following, now, "all")
    assert len(first) == MAX_CATCH_UP
    assert len(first) + len(second) == 24 * 60 + 1
    assert end == now + 60_000_000


# -- clock changes: Berlin goes forward on 29 March 2026 at 2:00 and back on 25 October 2026 at 3:00 -------------


def test_a_daily_rule_keeps_its_wall_clock_over_both_changes() -> None:
    spring = list(islice(ticks("0 9 * * *", BERLIN, moment("2026-03-28T00:00:00")), 3))
    assert [shown(tick) for tick in spring] == ["03-28 08:00", "03-29 07:00", "03-30 07:00"]
    autumn = list(islice(ticks("0 9 * * *", BERLIN, moment("2026-10-24T00:00:00")), 3))
    assert [shown(tick) for tick in autumn] == ["10-24 07:00", "10-25 08:00", "10-26 08:00"]


def test_a_rule_in_the_hour_that_is_skipped_still_ticks_once_that_day() -> None:
    nights = list(islice(ticks("30 2 * * *", BERLIN, moment("2026-03-27T12:00:00")), 3))
    assert [shown(tick, BERLIN)[:5] for tick in nights] == ["03-28", "03-29", "03-30"]
    assert nights[1] == moment("2026-03-29T01:00:00"), "right after the gap, as Debian's cron does it"


def test_a_rule_in_the_hour_that_is_repeated_ticks_once_that_day() -> None:
    nights = list(islice(ticks("30 2 * * *", BERLIN, moment("2026-10-24T12:00:00")), 3))
    assert [shown(tick, BERLIN) for tick in nights] == ["10-25 02:30", "10-26 02:30", "10-27 02:30"]


def test_a_rule_for_every_quarter_of_an_hour_does_not_stop_during_a_change() -> None:
    for day in ("2026-03-29", "2026-10-25"):
        several = list(islice(ticks("*/15 * * * *", BERLIN, moment(f"{day}T00:00:00")), 20))
        assert {later - earlier for earlier, later in pairwise(several)} == {900_000_000}


# -- rules that are refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "every day",
        "* * * *",
        "61 * * * *",
        "* 24 * * *",
        "0 0 31 2 *",
        "0 0 30 2 *",
        "* * * * * * *",
        "x" * 300,
        None,
        7,
    ],
)
def test_a_rule_that_does_not_parse_or_never_ticks_is_refused(cron: Any) -> None:
    with pytest.raises(InvalidSchedule, match="cron"):
        check_cron(cron, "UTC")


@pytest.mark.parametrize("timezone", ["", "Mars/Olympus", "../../etc/passwd", "/etc/localtime", "a\x00b", None, 7])
def test_a_time_zone_that_does_not_exist_is_refused(timezone: Any) -> None:
    with pytest.raises(InvalidSchedule, match="timezone"):
        check_cron("* * * * *", timezone)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("cron", RULES)
def test_a_good_rule_is_taken_in_every_time_zone(cron: str, zone: str) -> None:
    check_cron(cron, zone)


@pytest.mark.parametrize("value", ["", "none", None, 1, ["one"]])
def test_an_unknown_way_to_catch_up_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="skip, one, all"):
        check_catch_up(value)
