"""A queue is created by its first use, not by reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Queue, Store

LOOKS: dict[str, tuple[Callable[[Queue], Any], Any]] = {
    "peek": (lambda queue: queue.peek(), []),
    "stats": (lambda queue: queue.stats(), {}),
    "count": (lambda queue: queue.count(), 0),
    "leases": (lambda queue: queue.leases(), []),
    "archive": (lambda queue: queue.archive(), []),
    "dead_letters": (lambda queue: queue.dead_letters(), []),
    "redrive": (lambda queue: queue.redrive(), 0),
    "purge": (lambda queue: queue.purge(), 0),
    "groups": (lambda queue: queue.groups(), []),
    "batches": (lambda queue: queue.batches(), []),
    "consumers": (lambda queue: queue.consumers(), []),
    "flush": (lambda queue: queue.flush(), 0),
}


@pytest.mark.parametrize("verb", LOOKS)
def test_a_queue_that_was_never_used_is_empty_and_looking_does_not_make_it(store: Store, verb: str) -> None:
    look, expected = LOOKS[verb]
    assert look(store.queue("never used")) == expected
    assert store.queues() == []
