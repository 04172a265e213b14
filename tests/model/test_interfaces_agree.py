"""Law 10: the same walk has the same results through every interface.

A few walks in every run; `PENSTOCK_TEST_SEED=random PENSTOCK_WALKS=3000 pytest tests/model` walks longer.
"""

from __future__ import annotations

from collections.abc import Iterator

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


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[type[InterfaceMachine]]:
    clock = Clock()
    with opened_sides(tmp_path_factory.mktemp("sides"), clock) as sides:
        yield type("Machine", (InterfaceMachine,), {"sides": sides, "clock": clock})


# A run takes seconds; shrinking a failure, or a long run, takes more.
@pytest.mark.timeout(3600)
def test_a_random_walk_is_the_same_through_every_interface(machine: type[InterfaceMachine]) -> None:
    run_state_machine_as_test(machine, settings=BOUNDED)


def test_reasons_that_name_a_position_name_the_same_message(machine: type[InterfaceMachine]) -> None:
    """A walk that failed. The position of a message depends on what the store had before."""
    machine.sides[-1].observer.queue("before").send(b"")
    walk = machine()
    walk.begin(max_retries=1, delivery="at_least_once", ordered=True, items=[{}, {}])
    walk.receive(limit=2, group="default", lease=None)
    walk.settle(which=1, verb="nak", delay=7, reason=None)
    walk.teardown()


def test_a_batch_that_has_ended_takes_no_more_until_the_next_one_is_opened(machine: type[InterfaceMachine]) -> None:
    """A walk that failed: an empty batch ends when it is started."""
    walk = machine()
    walk.begin(max_retries=1, delivery="at_least_once", ordered=False, items=[{}])
    walk.batch(name="nightly", verb="start")
    walk.send(options={"batch": "nightly"})
    assert len(walk.ids) == 1
    walk.open_batch(name="nightly", options={})
    walk.send(options={"batch": "nightly"})
    assert len(walk.ids) == 3
    walk.counts_agree()
    walk.teardown()
