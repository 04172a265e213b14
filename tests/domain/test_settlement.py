"""Reasons as text."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.domain.lifecycle import State
from penstock.domain.settlement import Settled, reason_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("", ""),
        ("paper jam", "paper jam"),
        (ValueError("paper jam"), "ValueError: paper jam"),
        (ValueError(), "ValueError"),
        (KeyError("order"), "KeyError: 'order'"),
        (7, "7"),
        ("Bücher", "Bücher"),
        ("caf\udce9.txt", "caf\\udce9.txt"),
        (OSError("caf\udce9.txt"), "OSError: caf\\udce9.txt"),
    ],
    ids=repr,
)
def test_any_value_becomes_a_reason_text(value: Any, text: str | None) -> None:
    assert reason_text(value) == text


def test_an_exception_with_a_broken_str_becomes_a_reason_text() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert reason_text(Odd()) == "Odd"


def test_a_settlement_without_an_error_is_ok() -> None:
    assert Settled("id", State.SUCCEEDED).ok
