"""The messages of a queue by state, in pages."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from penstock.client.aio.queue import AsyncQueue
from penstock.client.selection import state_of
from penstock.domain.lifecycle import State
from penstock.domain.results import GroupStats
from penstock.domain.timestamps import to_time
from penstock.servers.access import Right
from penstock.servers.http.dashboard.renderer import page
from penstock.servers.http.dashboard.visible_queues import known_queue
from penstock.servers.http.router import Route
from penstock.servers.http.state import http_state

SHOWN = 50


async def show(request: Request, queue: str) -> Response:
    await known_queue(request, queue)
    source: AsyncQueue = await http_state(request).store.queue(queue)
    state = state_of(request.query_params.get("state") or State.LEASED)
    group = await source.existing_group(request.query_params.get("group") or None)
    stats = await source.stats()
    found = await source.messages(state, group=group, limit=SHOWN, after=request.query_params.get("after") or None)
    more = None
    if found.next is not None:
        more = "?" + urlencode({**request.query_params, "state": str(state), "after": found.next})
    return page(
        request,
        "messages.html",
        queue=queue,
        group=group,
        groups=list(stats),
        state=state,
        counts=counts_of(stats.get(group)),
        messages=found.messages,
        more=more,
        engine_now=to_time(await source.executor.read(source.engine.now)),
    )


def counts_of(stats: GroupStats | None) -> dict[str, int | None]:
    """The count of each state from the stats of the queue; None for a single outcome of dead letters."""
    counts: dict[str, int | None] = {str(state): None for state in State}
    if stats is not None:
        counts |= {
            str(State.LEASED): stats.in_progress,
            str(State.READY): stats.available + stats.redo,
            str(State.HELD): stats.held,
        }
    running = (State.LEASED, State.READY, State.HELD)
    return {str(state): counts[str(state)] for state in (*running, *(one for one in State if one not in running))}


ROUTES = [Route("GET", "/queues/{queue}/messages", show, Right.LOOK)]
