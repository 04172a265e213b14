"""Notices between queues of a cluster about the members of batches. The functions keep a notice until it was delivered;
whoever made the call delivers it, and a sweep finishes what was cut off between."""

from __future__ import annotations

import contextlib
from itertools import groupby
from typing import TYPE_CHECKING, Any

from penstock.domain.errors import StoreError

if TYPE_CHECKING:
    from penstock.engines.redis.connection import RedisDatabase

# Notices that one call delivers.
AT_ONCE = 1000


def deliver(database: RedisDatabase, queue: str, posted: list[Any]) -> None:
    """Deliver what the queue has posted, in its order. The call that posted it has taken effect, so a node that cannot
    be reached is left to the next sweep."""
    with contextlib.suppress(StoreError):
        for first in range(0, len(posted), AT_ONCE):
            for target, found in groupby(posted[first : first + AT_ONCE], key=lambda one: one[1]):
                rows = list(found)
                database.write("deliver", target.decode(), [notice for _, _, notice in rows])
                database.write("delivered", queue, numbers=[number for number, _, _ in rows])


def deliver_pending(database: RedisDatabase, queue: str) -> None:
    pending = database.read("notices", queue)
    if pending:
        deliver(database, queue, pending)
