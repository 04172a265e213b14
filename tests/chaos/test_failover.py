"""A standby takes over under load: every law holds with a synchronous one, and the checker tells what an asynchronous
one loses."""

from __future__ import annotations

import pytest

from penstock.chaos.run import RunOptions, run
from tests.chaos.test_short_runs import judged

FAULTS = ("kill", "freeze", "cut", "hold", "rollback")
PROTOCOLS = ("python", "async", "resp", "sql")


@pytest.mark.slow
def test_a_synchronous_standby_takes_over_without_a_loss() -> None:
    verdict = run(RunOptions(None, 10, 41, FAULTS, PROTOCOLS, server="pair"))
    assert verdict.word == "ok", judged(verdict)
    assert verdict.counts["fault failover"] == 1


@pytest.mark.slow
def test_what_an_asynchronous_standby_never_got_is_found_missing() -> None:
    """The standby lags by two seconds: acknowledged commits are lost, and the run reports it."""
    verdict = run(RunOptions(None, 10, 42, FAULTS, PROTOCOLS, server="async-pair"))
    assert verdict.word == "violation"
    assert {one.law[:5] for one in verdict.violations} & {"law 1", "law 7"}
