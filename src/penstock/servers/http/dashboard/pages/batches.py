"""Batches of all queues, with their progress."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain import refusals
from penstock.domain.results import BatchInfo
from penstock.servers.access import Right
from penstock.servers.http.auth import identity_of
from penstock.servers.http.dashboard.renderer import back, page
from penstock.servers.http.dashboard.visible_queues import known_queue, visible_queues
from penstock.servers.http.router import Route
from penstock.servers.http.state import http_state

SHOWN = 100
SHOWN_OF_A_QUEUE = 20
MEMBERS_SHOWN = 50
STATES = ("running", "cancelling", "open", "finished", "cancelled")


async def show(request: Request) -> Response:
    state = http_state(request)
    wanted = request.query_params.get("queue")
    known = [info.name for info in await visible_queues(request)]
    names = [name for name in known if wanted in (None, "", name)]
    if wanted and not names:
        raise refusals.no_queue(wanted, known)
    engine = state.store.engine
    found = await state.store.executor.read(
        lambda: [one for name in names for one in engine.batches(name)[:SHOWN_OF_A_QUEUE]]
    )
    batches = sorted(found, key=lambda batch: STATES.index(batch.state))
    return page(request, "batches.html", batches=batches[:SHOWN], hidden=max(0, len(batches) - SHOWN))


async def show_one(request: Request, queue: str, batch: str) -> Response:
    """The newest batch of a name, with its members."""
    await known_queue(request, queue)
    chosen = (await http_state(request).store.queue(queue)).batch(batch)
    found = await chosen.members(MEMBERS_SHOWN, request.query_params.get("after") or None)
    more = None if found.next is None else "?" + urlencode({"after": found.next})
    # Members may be in queues that the user may not see.
    identity = identity_of(request)
    seen = [one for one in found.messages if identity.may(Right.LOOK, one.queue or queue)]
    return page(request, "batch.html", batch=await chosen.info(), members=seen, more=more)


async def start(request: Request, queue: str, batch: str) -> Response:
    await known_queue(request, queue)
    info = await (await http_state(request).store.queue(queue)).batch(batch).start()
    return back(request, "batches", notice=_notice(info))


async def cancel(request: Request, queue: str, batch: str) -> Response:
    await known_queue(request, queue)
    info = await (await http_state(request).store.queue(queue)).batch(batch).cancel()
    return back(request, "batches", notice=_notice(info))


def _notice(info: BatchInfo) -> str:
    cancelled = f", {info.cancelled:,} cancelled" if info.cancelled else ""
    return f"Batch {info.name!r} is {info.state}: {info.remaining:,} of {info.total:,} messages to go{cancelled}."


ROUTES = [
    Route("GET", "/batches", show, Right.LOOK),
    Route("GET", "/queues/{queue}/batches/{batch}", show_one, Right.LOOK),
    Route("POST", "/queues/{queue}/batches/{batch}/start", start, Right.OPERATE),
    Route("POST", "/queues/{queue}/batches/{batch}/cancel", cancel, Right.OPERATE),
]
