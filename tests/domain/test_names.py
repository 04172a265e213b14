"""The one rule for names, and how values appear in errors."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.errors import InvalidName
from penstock.domain.names import MAX_NAME_BYTES, check_name, nearest, shown


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
