"""A real store behaves like the reference model under random calls."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conformance.engines import EVERY_ENGINE_MARKED, VALKEY_MARKED, EngineRow
from tests.model.machine import QueueMachine
from tests.seeds import walks

BOUNDED = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


# A run takes seconds; shrinking a failure, or a long run, takes minutes.
pytestmark = pytest.mark.timeout(3600)


# A step on a server costs many times what it costs in the process: fewer walks there.
EXAMPLES = {"sqlite": 60, "postgres": 8, "redis": 8, "mariadb": 8, "valkey": 4}
ROWS = (*EVERY_ENGINE_MARKED, VALKEY_MARKED)


def machine(row: EngineRow, **attributes: object) -> type[QueueMachine]:
    return type("Machine", (QueueMachine,), {"engine": row, **attributes})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_queue_behaves_as_the_model(row: EngineRow) -> None:
    run_state_machine_as_test(machine(row), settings=settings(BOUNDED, max_examples=walks(EXAMPLES[row.name])))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_an_ordered_queue_behaves_as_the_model(row: EngineRow) -> None:
    run_state_machine_as_test(
        machine(row, ordered=True), settings=settings(BOUNDED, max_examples=walks(EXAMPLES[row.name] // 2))
    )
