"""rsqueue's runners in a worker: error codes, and cancellation of the batch of a running message."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock import MessageFailed, State
from penstock.workers.app import Run
from tests.workers import error_code_handlers
from tests.workers.conftest import await_until


@pytest.mark.parametrize("run", ["thread", "process"])
@pytest.mark.parametrize("how", ["raise", "reject", "cause", "by hand"])
def test_wait_raises_the_code_of_the_handlers_error(store: penstock.Store, run: Run, how: str) -> None:
    queue = store.queue("work", max_retries=0)
    queue.send(how, address="report")
    app = penstock.App()
    app.add("work", error_code_handlers.fail, run=run, concurrency=1)
    penstock.Worker(store, app).run(once=True)
    with pytest.raises(MessageFailed, match="no paper") as caught:
        queue.wait("report", timeout_seconds=60)
    assert caught.value.code == "507"


@pytest.mark.parametrize("run", ["thread", "process"])
def test_a_running_handler_learns_that_its_batch_was_cancelled(store: penstock.Store, start: Any, run: Run) -> None:
    queue = store.queue("work")
    batch = queue.batch("nightly")
    batch.send(1)
    batch.start()
    app = penstock.App()
    app.add("work", error_code_handlers.run_until_cancelled, run=run, concurrency=1)
    start(app)
    await_until(lambda: queue.stats("default").in_progress == 1)
    batch.cancel()
    await_until(lambda: batch.state == "cancelled")
    assert [(dead.outcome, dead.reason) for dead in queue.dead_letters()] == [(State.CANCELLED, "stopped early")]
