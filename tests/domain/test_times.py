"""Times: microseconds inside, aware datetimes outside, nothing lost between."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.errors import InvalidInput
from penstock.domain.times import (
    MAX_SECONDS,
    check_integer,
    check_seconds,
    from_time,
    microseconds,
    to_optional_time,
    to_time,
)

zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(value=st.datetimes(datetime(1900, 1, 1), datetime(9000, 1, 1), timezones=zones))
def test_a_time_comes_back_to_the_microsecond_from_any_zone(value: datetime) -> None:
    back = to_time(from_time("at", value))
    assert back == value
    assert back.utcoffset() == timedelta(0)


@given(at=st.integers(-(10**15), 10**17))
def test_microseconds_come_back_as_they_were(at: int) -> None:
    assert from_time("at", to_time(at)) == at


def test_no_time_stays_no_time() -> None:
    assert to_optional_time(None) is None
    assert to_optional_time(0) == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("value", [datetime(2026, 3, 5), "2026-03-05", 1_772_668_800, None])
def test_a_time_without_a_zone_or_of_another_kind_is_refused_by_value(value: Any) -> None:
    with pytest.raises(InvalidInput, match="deadline_at"):
        from_time("deadline_at", value)


@given(seconds=st.floats(0, MAX_SECONDS))
def test_seconds_become_the_nearest_microsecond(seconds: float) -> None:
    assert abs(microseconds(seconds) - seconds * 1_000_000) <= 0.5


@given(seconds=st.floats(0, MAX_SECONDS) | st.integers(0, MAX_SECONDS))
def test_a_duration_within_reason_is_taken_unchanged(seconds: float) -> None:
    assert check_seconds("lease_seconds", seconds) == seconds


@pytest.mark.parametrize("value", [-0.001, float("nan"), float("inf"), -float("inf"), MAX_SECONDS + 1, "1", None, True])
def test_a_duration_out_of_reason_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidInput, match="lease_seconds"):
        check_seconds("lease_seconds", value)


def test_the_minimum_itself_is_refused_when_more_is_asked_for() -> None:
    assert check_seconds("lease_seconds", 0) == 0
    with pytest.raises(InvalidInput, match="more than 0"):
        check_seconds("lease_seconds", 0, above=True)


@pytest.mark.parametrize("value", [2, 8, 2.0, "3", None, True, float("nan")])
def test_a_number_out_of_its_range_or_not_whole_is_refused(value: Any) -> None:
    assert check_integer("shards", 3, 3, 7) == 3
    assert check_integer("shards", 7, 3, 7) == 7
    with pytest.raises(InvalidInput, match="shards"):
        check_integer("shards", value, 3, 7)
