"""The test support for programs that use Penstock."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import penstock
from penstock.testing import Clock, memory_store, run_due
from tests.architecture.sources import ROOT

PROGRAM_TEST = """
import penstock

app = penstock.App()


@app.handler("orders", max_retries=1, backoff_base_seconds=60)
def ship(payload: dict):
    if payload["order"] == 2:
        raise ValueError("out of stock")


def test_orders_are_shipped(penstock_store, penstock_run):
    penstock_store.queue("orders").send({"order": 1})
    assert [str(one.event) for one in penstock_run(app)] == ["ack"]


def test_a_failed_order_is_tried_again_after_a_minute(penstock_store, penstock_clock, penstock_run):
    orders = penstock_store.queue("orders")
    orders.send({"order": 2})
    (first,) = penstock_run(app)
    assert (str(first.event), first.reason) == ("nak", "ValueError: out of stock")
    assert penstock_run(app) == []
    penstock_clock.advance(minutes=1)
    assert [one.attempt for one in penstock_run(app)] == [2]
    assert [letter.json() for letter in orders.dead_letters()] == [{"order": 2}]
"""


def test_the_fixtures_are_there_for_a_program_that_tests_with_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_program.py").write_text(PROGRAM_TEST)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    plugin = project["entry-points"]["pytest11"]["penstock"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", plugin, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        # Load only this plugin explicitly: where Penstock is installed pytest finds it, and it must not be loaded
        # twice.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
    )
    assert "2 passed" in ended.stdout, ended.stdout + ended.stderr


def test_everything_due_runs_at_once_what_handlers_send_included() -> None:
    clock = Clock()
    with memory_store(clock) as store:
        app = penstock.App()

        @app.handler("first")
        async def pass_on(delivery: penstock.AsyncDelivery) -> None:
            store.queue("second").send(delivery.json() + 1)

        @app.handler("second", batch_size=10)
        def gather(numbers: list[int]) -> None:
            store.queue("third").send(sum(numbers))

        app.schedule("nightly", "0 3 * * *", "first", 40, catch_up="one")
        store.queue("first").send_many([1, 2])
        assert [one.queue for one in run_due(store, app)] == ["first", "second", "first", "second"]
        clock.advance(days=1)
        assert [one.queue for one in run_due(store, app)] == ["first", "second"]
        assert [delivery.json() for delivery in store.queue("third").receive(limit=10)] == [2, 3, 41]


def test_raises_shows_handler_errors_and_endless_loops_are_refused() -> None:
    with memory_store() as store:
        store.queue("work").send(b"x")

        def fail(delivery: penstock.Delivery) -> None:
            raise KeyError("here")

        with pytest.raises(KeyError, match="here"):
            run_due(store, {"work": fail}, raises=True)
        store.queue("loop").send(b"x")
        with pytest.raises(penstock.InvalidInput, match="does one of them send itself again"):
            run_due(store, {"loop": lambda delivery: store.queue("loop").send(b"x")}, limit=20)
