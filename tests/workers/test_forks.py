"""Handlers that fork: the child exits with the handler and settles nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock
from tests.workers import process_handlers
from tests.workers.conftest import events


@pytest.mark.parametrize(
    ("handler", "options"),
    [(process_handlers.handle, {}), (process_handlers.handle_async, {}), (process_handlers.handle, {"run": "process"})],
    ids=["thread", "async", "process"],
)
def test_a_process_forked_by_a_handler_exits_with_it(
    store: penstock.Store, handler: Callable[..., Any], options: dict[str, Any]
) -> None:
    queue = store.queue("work")
    ids = queue.send_many([{"do": "fork"}] * 2)
    app = penstock.App()
    app.add("work", handler, **options)
    penstock.Worker(store, app).run(once=True)
    assert [events(queue, one) for one in ids] == [["send", "receive", "reject"]] * 2
    assert {letter.reason for letter in queue.dead_letters()} == {"the copy ended with 3"}
