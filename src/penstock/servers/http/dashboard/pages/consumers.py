"""Consumers of all queues, with their last heartbeat."""

from __future__ import annotations

from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.names import shown
from penstock.domain.observations import ConsumerInfo
from penstock.domain.times import to_time
from penstock.servers.access import Right
from penstock.servers.http.auth import identity_of
from penstock.servers.http.dashboard.figures import plural
from penstock.servers.http.dashboard.forms import form_of
from penstock.servers.http.dashboard.known import known_queue
from penstock.servers.http.dashboard.rendering import back, page
from penstock.servers.http.routing import Route
from penstock.servers.http.site import site_of

SHOWN = 500
# The sweep removes a consumer after two missed heartbeats.
MISSES = 2


class Row(NamedTuple):
    info: ConsumerInfo
    silent_seconds: float
    level: str


async def show(request: Request) -> Response:
    identity, store = identity_of(request), site_of(request).store
    visible = [one for one in await store.consumers() if identity.may(Right.LOOK, one.queue)]
    rows = rows_of(visible, await store._read(store.engine.now))
    return page(request, "consumers.html", rows=rows[:SHOWN], hidden=max(0, len(rows) - SHOWN))


def rows_of(consumers: list[ConsumerInfo], now: int) -> list[Row]:
    """`now` is the engine's: heartbeats are times of its clock, which need not be this machine's."""
    return [_row(one, (to_time(now) - one.heartbeat_at).total_seconds()) for one in consumers]


def _row(info: ConsumerInfo, silent_seconds: float) -> Row:
    missed = silent_seconds / info.heartbeat_seconds
    return Row(info, max(0.0, silent_seconds), "bad" if missed > MISSES else "warn" if missed > 1.5 else "good")


async def release(request: Request, queue: str) -> Response:
    """End a consumer's leases at once, for one that is known to be gone."""
    await known_queue(request, queue)
    form = await form_of(request)
    group, name = form.text("group") or "", form.text("consumer") or ""
    store = site_of(request).store
    count = await store._run(lambda: store.engine.deregister(queue, group, name))
    told = f"Consumer {shown(name)} was removed; {plural(count, 'message')} ready for others."
    return back(request, "consumers", told=told)


ROUTES = [
    Route("GET", "/consumers", show, Right.LOOK),
    Route("POST", "/queues/{queue}/consumers/release", release, Right.RECEIVE),
]
