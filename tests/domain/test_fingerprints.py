"""Reasons of the same fault have one fingerprint."""

from __future__ import annotations

import pytest

from penstock.domain.fingerprints import KEPT_CHARACTERS, NO_REASON, fingerprint


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("HTTP 503 after 17 ms", "HTTP <n> after <n> ms"),
        ("order 01a1e182-417b-7848-98e5-00000010061d is gone", "order <id> is gone"),
        ("no customer 'c-17' in \"crm\"", "no customer '…' in \"…\""),
        ("at 2026-11-15T09:30:00.123Z", "at <time>"),
        ("mail to ada@example.com bounced", "mail to <address> bounced"),
        ("object at 0x7f00beef", "object at <hex>"),
        ("digest deadbeefdeadbeef01 differs", "digest <hex> differs"),
        ("line\n  break", "line break"),
        (None, NO_REASON),
        ("  ", NO_REASON),
    ],
)
def test_ids_times_and_numbers_are_replaced_by_placeholders(reason: str | None, expected: str) -> None:
    assert fingerprint(reason) == expected


def test_a_long_reason_is_bounded() -> None:
    assert len(fingerprint("x y " * 1_000_000)) <= KEPT_CHARACTERS


def test_unbalanced_quotes_take_linear_time() -> None:
    assert fingerprint("'" * 100_001)
