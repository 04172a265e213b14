"""A real store behaves as the reference model, whatever is done to it in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import QueueMachine

BOUNDED = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


# A run takes seconds; when it fails, finding the shortest walk that still fails takes minutes.
pytestmark = pytest.mark.timeout(900)


class OrderedMachine(QueueMachine):
    ordered = True


def test_a_queue_behaves_as_the_model() -> None:
    run_state_machine_as_test(QueueMachine, settings=BOUNDED)


def test_an_ordered_queue_behaves_as_the_model() -> None:
    run_state_machine_as_test(OrderedMachine, settings=settings(BOUNDED, max_examples=30))
