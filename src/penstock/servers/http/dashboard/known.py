"""What a page is about must exist: a page for a name that nobody has used would only mislead."""

from __future__ import annotations

from starlette.requests import Request

from penstock.domain.errors import NotFound
from penstock.domain.names import nearest, shown
from penstock.domain.observations import QueueInfo
from penstock.servers.access import Right
from penstock.servers.http.auth import identity_of
from penstock.servers.http.dashboard.history import history_of
from penstock.servers.http.site import site_of


async def known_queue(request: Request, queue: str) -> QueueInfo:
    sample = history_of(request).sample
    if sample is not None and queue in sample.queues:
        return sample.queues[queue].info
    # It may be younger than the sample.
    found = next((info for info in await site_of(request).store.queues() if info.name == queue), None)
    if found is None:
        like = nearest(queue, [info.name for info in await visible_queues(request)])
        raise NotFound(f"there is no queue {shown(queue)}{like or ': a queue is made by the first message sent to it'}")
    return found


async def visible_queues(request: Request) -> list[QueueInfo]:
    """All that this user may look at, by name."""
    identity = identity_of(request)
    return [info for info in await site_of(request).store.queues() if identity.may(Right.LOOK, info.name)]
