"""Consumers: one line per process, with its queues and their last heartbeat."""

from __future__ import annotations

from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.results import ConsumerInfo
from penstock.domain.timestamps import to_time
from penstock.domain.validation import shown
from penstock.servers.access import Right
from penstock.servers.http.auth import identity_of
from penstock.servers.http.dashboard.figures import plural
from penstock.servers.http.dashboard.forms import form_of
from penstock.servers.http.dashboard.renderer import back, page
from penstock.servers.http.dashboard.visible_queues import known_queue
from penstock.servers.http.router import Route
from penstock.servers.http.state import http_state

SHOWN = 500


class ConsumerRow(NamedTuple):
    info: ConsumerInfo
    silent_seconds: float
    level: str


async def show(request: Request) -> Response:
    identity, store = identity_of(request), http_state(request).store
    visible = [one for one in await store.consumers() if identity.may(Right.LOOK, one.queue)]
    rows = processes(rows_of(visible, await store.executor.read(store.engine.now)))
    return page(
        request,
        "consumers.html",
        rows=rows[:SHOWN],
        hidden=max(0, len(rows) - SHOWN),
        manageable={one.queue for one in visible if identity.may(Right.RECEIVE, one.queue)},
    )


def processes(rows: list[ConsumerRow]) -> list[list[ConsumerRow]]:
    """One line per process: all registrations under one name, in birth order."""
    together: dict[str, list[ConsumerRow]] = {}
    for row in rows:
        together.setdefault(row.info.name, []).append(row)
    return list(together.values())


def rows_of(consumers: list[ConsumerInfo], now: int) -> list[ConsumerRow]:
    """`now` is the time of the engine, whose clock also dates heartbeats."""
    return [_row(one, (to_time(now) - one.heartbeat_at).total_seconds()) for one in consumers]


def _row(info: ConsumerInfo, silent_seconds: float) -> ConsumerRow:
    missed = silent_seconds / info.heartbeat_seconds
    may_miss = info.max_missed_heartbeats
    level = "bad" if missed > may_miss + 1 else "warn" if missed > may_miss + 0.5 else "good"
    return ConsumerRow(info, max(0.0, silent_seconds), level)


async def release(request: Request, queue: str) -> Response:
    """Release the leases of a consumer that is known to be dead."""
    await known_queue(request, queue)
    form = await form_of(request)
    group, name = form.text("group") or "", form.text("consumer") or ""
    store = http_state(request).store
    count = await store.executor.write(lambda: store.engine.deregister(queue, group, name))
    notice = f"Consumer {shown(name)} was removed; {plural(count, 'message')} ready for others."
    return back(request, "consumers", notice=notice)


ROUTES = [
    Route("GET", "/consumers", show, Right.LOOK),
    Route("POST", "/queues/{queue}/consumers/release", release, Right.RECEIVE),
]
