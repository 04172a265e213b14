"""What a page is about must exist: a page for a name that nobody has used would only mislead."""

from __future__ import annotations

from starlette.requests import Request

from penstock.domain.errors import NotFound
from penstock.domain.names import shown
from penstock.domain.observations import QueueInfo
from penstock.servers.access import Right
from penstock.servers.http.auth import identity_of
from penstock.servers.http.dashboard.history import history_of
from penstock.servers.http.site import site_of


async def known_queue(request: Request, queue: str) -> QueueInfo:
    sample = await history_of(request).latest()
    if queue not in sample.queues:
        sample = await site_of(request).sampler.sample(max_age_seconds=0)
    if queue not in sample.queues:
        raise NotFound(f"there is no queue {shown(queue)}: a queue is made by the first message sent to it")
    return sample.queues[queue].info


async def visible_queues(request: Request) -> list[QueueInfo]:
    """All that this user may look at, by name."""
    sample = await history_of(request).latest()
    identity = identity_of(request)
    return [one.info for name, one in sorted(sample.queues.items()) if identity.may(Right.LOOK, name)]
