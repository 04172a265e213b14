"""Retries: whether a message has any left, and the backoff before the next one."""

from __future__ import annotations

from collections.abc import Callable

from penstock.domain.policy import Policy


def has_retries(policy: Policy, attempt: int) -> bool:
    """The first delivery is attempt 1 and is not a retry."""
    return policy.max_retries is None or attempt <= policy.max_retries


def backoff_seconds(policy: Policy, attempt: int, random: Callable[[], float]) -> float:
    """base × factor^(attempt - 1), at most the maximum, plus jitter so that failed messages do not return in step."""
    # The exponent is bounded: without a limit of retries the float would overflow.
    grown = policy.backoff_base_seconds * policy.backoff_factor ** min(attempt - 1, 64)
    return min(grown, policy.backoff_max_seconds) + policy.backoff_jitter_seconds * random()
