"""Law 10: the same walk has the same results through every interface.

A few walks in every run; `PENSTOCK_TEST_SEED=random PENSTOCK_WALKS=3000 pytest tests/model` walks longer.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conformance.clock import Clock
from tests.model.interface_machine import InterfaceMachine
from tests.model.interface_sides import opened_sides
from tests.seeds import walks

BOUNDED = settings(
    max_examples=walks(12),
    stateful_step_count=30,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


# A run takes seconds; shrinking a failure, or a long run, takes more.
@pytest.mark.timeout(3600)
def test_a_random_walk_is_the_same_through_every_interface(tmp_path: Path) -> None:
    clock = Clock()
    with opened_sides(tmp_path, clock) as sides:
        machine = type("Machine", (InterfaceMachine,), {"sides": sides, "clock": clock})
        run_state_machine_as_test(machine, settings=BOUNDED)
