"""Batches of all queues, with how far each is."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.errors import NotFound
from penstock.domain.names import nearest, shown
from penstock.domain.observations import BatchInfo
from penstock.servers.access import Right
from penstock.servers.http.dashboard.known import known_queue, visible_queues
from penstock.servers.http.dashboard.rendering import back, page
from penstock.servers.http.routing import Route
from penstock.servers.http.site import site_of

SHOWN = 100
SHOWN_OF_A_QUEUE = 20
STATES = ("running", "cancelling", "open", "finished", "cancelled")


async def show(request: Request) -> Response:
    site = site_of(request)
    wanted = request.query_params.get("queue")
    known = [info.name for info in await visible_queues(request)]
    names = [name for name in known if wanted in (None, "", name)]
    if wanted and not names:
        raise NotFound(f"there is no queue {shown(wanted)}{nearest(wanted, known)}")
    engine = site.store.engine
    found = await site.store._read(lambda: [one for name in names for one in engine.batches(name)[:SHOWN_OF_A_QUEUE]])
    batches = sorted(found, key=lambda batch: STATES.index(batch.state))
    return page(request, "batches.html", batches=batches[:SHOWN], hidden=max(0, len(batches) - SHOWN))


async def start(request: Request, queue: str, batch: str) -> Response:
    await known_queue(request, queue)
    info = await (await site_of(request).store.queue(queue)).batch(batch).start()
    return back(request, "batches", told=_told(info))


async def cancel(request: Request, queue: str, batch: str) -> Response:
    await known_queue(request, queue)
    info = await (await site_of(request).store.queue(queue)).batch(batch).cancel()
    return back(request, "batches", told=_told(info))


def _told(info: BatchInfo) -> str:
    return f"Batch {info.name!r} is {info.state}, with {info.remaining:,} of {info.total:,} messages to go."


ROUTES = [
    Route("GET", "/batches", show, Right.LOOK),
    Route("POST", "/queues/{queue}/batches/{batch}/start", start, Right.OPERATE),
    Route("POST", "/queues/{queue}/batches/{batch}/cancel", cancel, Right.OPERATE),
]
