"""The status of a queue as the server reports it, and waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 60.0


def until(holds: Callable[[], Any]) -> Any:
    """Repeat a question until its answer is not empty."""
    gives_up_at = time.monotonic() + PATIENCE_SECONDS
    while not (answer := holds()):
        assert time.monotonic() < gives_up_at, "it did not happen"
        time.sleep(0.005)
    return answer


def counts(call: Callable[..., Any], queue: str, group: str) -> dict[str, int]:
    """The counts of one group in the reply of QSTATUS, through any client or wire (`call`)."""
    ((name, groups),) = call("QSTATUS", queue, "GROUPS", group)
    assert _text(name) == queue
    assert _text(groups[0]) == group
    told = dict(zip(groups[1][::2], groups[1][1::2], strict=True))
    return {_text(key): int(value) for key, value in told.items()}


def blocked(call: Callable[..., Any], queue: str, group: str, number: int = 1) -> None:
    """Wait until so many consumers wait for the queue."""
    until(lambda: counts(call, queue, group)["consumers"] == number)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
