"""Backoff: its bounds, growth and jitter."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.policy import Policy
from penstock.domain.retry import backoff_seconds, has_retries

policies = st.builds(
    Policy,
    max_retries=st.none() | st.integers(0, 1_000_000),
    backoff_base_seconds=st.floats(0, 3_000_000_000) | st.integers(0, 3_000_000_000),
    backoff_factor=st.floats(1, 100) | st.integers(1, 100),
    backoff_jitter_seconds=st.floats(0, 1_000_000),
    backoff_max_seconds=st.floats(0, 3_000_000_000),
)
attempts = st.integers(1, 10_000_000)
chances = st.floats(0, 1, exclude_max=True)


@given(policy=policies, attempt=attempts, chance=chances)
def test_a_backoff_is_finite_and_within_its_bounds(policy: Policy, attempt: int, chance: float) -> None:
    seconds = backoff_seconds(policy, attempt, lambda: chance)
    assert math.isfinite(seconds)
    assert 0 <= seconds <= policy.backoff_max_seconds + policy.backoff_jitter_seconds
    assert seconds >= min(policy.backoff_base_seconds, policy.backoff_max_seconds)


@given(policy=policies, attempt=attempts)
def test_a_later_attempt_never_waits_less(policy: Policy, attempt: int) -> None:
    assert backoff_seconds(policy, attempt, lambda: 0.0) <= backoff_seconds(policy, attempt + 1, lambda: 0.0)


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 10), (2, 20), (3, 40), (4, 80), (9, 2_560), (10, 3_600)])
def test_the_default_policy_doubles_from_ten_seconds_to_an_hour(attempt: int, seconds: float) -> None:
    assert backoff_seconds(Policy(), attempt, lambda: 0.0) == seconds
    assert backoff_seconds(Policy(), attempt, lambda: 0.5) == seconds + 2.5


@given(retries=st.integers(0, 1_000), attempt=attempts)
def test_the_first_delivery_is_not_a_retry(retries: int, attempt: int) -> None:
    assert has_retries(Policy(max_retries=retries), attempt) == (attempt < retries + 1)
    assert has_retries(Policy(max_retries=None), attempt)
