"""Validation of names, times, durations and numbers, and how values appear in errors."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.errors import InvalidInput, InvalidName
from penstock.domain.limits import MAX_NAME_BYTES, MAX_SECONDS
from penstock.domain.validation import check_integer, check_name, check_seconds, nearest, seconds_of, shown


@given(value=st.text(max_size=300))
def test_a_name_is_taken_unchanged_exactly_when_the_rule_allows_it(value: str) -> None:
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        size = -1
    allowed = 1 <= size <= MAX_NAME_BYTES and not any(unicodedata.category(letter) == "Cc" for letter in value)
    if allowed:
        assert check_name("queue", value) == value
    else:
        with pytest.raises(InvalidName, match="queue"):
            check_name("queue", value)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "empty"),
        ("x" * 256, "256 bytes"),
        ("ü" * 128, "256 bytes"),
        ("a\nb", "control"),
        ("a\x7f", "control"),
        ("\x85", "control"),
        ("\ud800", "surrogate"),
        (7, "int"),
        (None, "NoneType"),
        (b"orders", "bytes"),
    ],
)
def test_an_error_says_which_rule_a_name_breaks(value: Any, says: str) -> None:
    with pytest.raises(InvalidName, match=f"group.*{says}"):
        check_name("group", value)


@given(value=st.text() | st.binary() | st.integers() | st.lists(st.text()))
def test_a_value_in_an_error_is_short_plain_text_on_one_line(value: object) -> None:
    text = shown(value)
    assert len(text) <= 80
    assert text.replace("…", "").isascii()
    assert text.isprintable()


def test_a_suggestion_is_made_when_a_known_word_is_close() -> None:
    assert nearest("max_retrys", ["max_retries", "ordered"]) == "; did you mean 'max_retries'?"
    assert nearest("zzz", ["max_retries", "ordered"]) == ""
    assert nearest("orders", []) == ""


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


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("-5", -5),
        ("1e3", 1000),
        ("500ms", 0.5),
        ("30s", 30),
        ("5m", 300),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1.5d", 129_600),
        ("2W", 1_209_600),
        (" 5m ", 300),
    ],
)
def test_a_duration_is_seconds_or_numbers_with_units(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5x", "m", "5 m", "nan", "inf", "1_0", "--5", "5m3", "-5m"])
def test_an_invalid_duration_is_named_in_the_error(text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        seconds_of(text)
    assert str(error.value).startswith(f"{text!r} is not a duration: use seconds such as 90")
