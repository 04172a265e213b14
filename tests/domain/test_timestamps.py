"""Conversion between microseconds and aware datetimes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.errors import InvalidInput
from penstock.domain.limits import MAX_SECONDS
from penstock.domain.timestamps import microseconds, to_optional_time, to_time
from penstock.domain.validation import from_time

zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(value=st.datetimes(datetime(1900, 1, 1), datetime(9000, 1, 1), timezones=zones))
def test_a_time_comes_back_to_the_microsecond_from_any_zone(value: datetime) -> None:
    back = to_time(from_time("at", value))
    assert back == value
    assert back.utcoffset() == timedelta(0)


@given(at=st.integers(-(10**15), 10**17))
def test_microseconds_come_back_as_they_were(at: int) -> None:
    assert from_time("at", to_time(at)) == at


def test_none_converts_to_none() -> None:
    assert to_optional_time(None) is None
    assert to_optional_time(0) == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("value", [datetime(2026, 3, 5), "2026-03-05", 1_772_668_800, None])
def test_a_time_without_a_zone_or_of_another_kind_is_refused_by_value(value: Any) -> None:
    with pytest.raises(InvalidInput, match="deadline_at"):
        from_time("deadline_at", value)


@pytest.mark.parametrize(
    "value",
    [
        datetime(9999, 12, 31, 23, 59, tzinfo=timezone(timedelta(hours=-14))),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(minutes=1))),
    ],
)
def test_a_time_whose_utc_is_outside_the_calendar_is_refused(value: datetime) -> None:
    with pytest.raises(InvalidInput, match=f"deadline_at {value.year:04}.* years 1 to 9999"):
        from_time("deadline_at", value)


@pytest.mark.parametrize("end", [datetime.min, datetime.max])
def test_the_ends_of_the_calendar_come_back(end: datetime) -> None:
    assert to_time(from_time("at", end.replace(tzinfo=UTC))) == end.replace(tzinfo=UTC)


@pytest.mark.parametrize(("at", "nearest"), [(-(2**63), datetime.min), (2**63 - 1, datetime.max)])
def test_a_stored_time_outside_the_calendar_is_read_as_its_end(at: int, nearest: datetime) -> None:
    assert to_time(at) == nearest.replace(tzinfo=UTC)


@given(seconds=st.floats(0, MAX_SECONDS))
def test_seconds_become_the_nearest_microsecond(seconds: float) -> None:
    assert abs(microseconds(seconds) - seconds * 1_000_000) <= 0.5
