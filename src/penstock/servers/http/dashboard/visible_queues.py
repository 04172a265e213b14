"""Queues that exist and that the user may see."""

from __future__ import annotations

from starlette.requests import Request

from penstock.domain.errors import NotFound
from penstock.domain.results import QueueInfo
from penstock.domain.validation import nearest, shown
from penstock.servers.access import Right
from penstock.servers.http.auth import identity_of
from penstock.servers.http.dashboard.history import history_of
from penstock.servers.http.state import http_state


async def known_queue(request: Request, queue: str) -> QueueInfo:
    sample, store = history_of(request).sample, http_state(request).store
    if sample is not None and queue in sample.queues and await store.executor.read(lambda: store.engine.has(queue)):
        return sample.queues[queue].info
    # The queue may be newer than the sample, or deleted since.
    found = next((info for info in await http_state(request).store.queues() if info.name == queue), None)
    if found is None:
        like = nearest(queue, [info.name for info in await visible_queues(request)])
        raise NotFound(f"there is no queue {shown(queue)}{like or ': a queue is made by the first message sent to it'}")
    return found


async def visible_queues(request: Request) -> list[QueueInfo]:
    """All queues that the user may look at, by name."""
    identity = identity_of(request)
    return [info for info in await http_state(request).store.queues() if identity.may(Right.LOOK, info.name)]
