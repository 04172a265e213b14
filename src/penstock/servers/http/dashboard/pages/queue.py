"""One queue: groups, consumers, policy, and actions."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.errors import InvalidInput
from penstock.domain.refusals import no_group
from penstock.domain.results import unread_primary_group
from penstock.domain.validation import shown
from penstock.servers.access import Right
from penstock.servers.http.auth import identity_of
from penstock.servers.http.dashboard import figures
from penstock.servers.http.dashboard.event_stream import Regions, events
from penstock.servers.http.dashboard.forms import form_of
from penstock.servers.http.dashboard.history import History, history_of, lead
from penstock.servers.http.dashboard.message_list import Listed, listed
from penstock.servers.http.dashboard.pages.consumers import rows_of
from penstock.servers.http.dashboard.pages.overview import drain_of, judged
from penstock.servers.http.dashboard.pages.policy import fields_of
from penstock.servers.http.dashboard.recipes import queue_recipes
from penstock.servers.http.dashboard.renderer import back, fragment, page
from penstock.servers.http.dashboard.series import CHART_COLUMNS, Series, chart_rows, latest_row
from penstock.servers.http.dashboard.visible_queues import known_queue
from penstock.servers.http.router import Route
from penstock.servers.http.sampler import QueueSample, Sample
from penstock.servers.http.state import http_state

NEXT_SHOWN = 10
BATCHES_SHOWN = 10


async def show(request: Request, queue: str) -> Response:
    state = http_state(request)
    info = await known_queue(request, queue)
    source = await state.store.queue(queue)
    policy, stats = await source.policy(), await source.stats()
    looked = QueueSample(msgspec.structs.replace(info, policy=policy), stats)
    group = chosen_group(request, looked)
    return page(
        request,
        "queue.html",
        info=looked.info,
        group=group,
        live=live_context(history_of(request), looked),
        consumers=rows_of(await source.consumers(), await source.executor.read(source.engine.now)),
        chart=chart_of(history_of(request).series(queue, group), request.query_params.get("range")),
        columns=CHART_COLUMNS,
        coming=await coming(request, queue, group),
        batches=(await source.batches())[:BATCHES_SHOWN],
        fields=fields_of(policy),
        recipes=queue_recipes(request, queue, group),
    )


def chosen_group(request: Request, queue: QueueSample) -> str:
    """The group of the charts: the requested one, else the one that represents the queue."""
    wanted = request.query_params.get("group")
    if wanted in queue.groups:
        return wanted
    primary = queue.info.policy.default_group
    if wanted and wanted != primary:
        raise no_group(queue.info.name, wanted, queue.groups)
    leading = lead(queue)
    return primary if leading is None else leading[0]


def live_context(history: History, queue: QueueSample) -> dict[str, Any]:
    groups = []
    primary = queue.info.policy.default_group
    for name, stats in sorted(queue.groups.items(), key=lambda one: (one[0] != primary, one[0])):
        series = history.series(queue.info.name, name)
        rates = series.rates()
        level, note = judged(queue, name, series)
        drain = drain_of(series, stats, queue.info.policy.paused)
        groups.append({"name": name, "stats": stats, "rates": rates, "level": level, "note": note, "drain": drain})
    return {"queue": queue.info, "groups": groups, "unread": unread_primary_group(queue.info.policy, queue.groups)}


def chart_of(series: Series, span: str | None) -> dict[str, object]:
    ring = series.long if span == "long" else series.recent
    return {
        "range": "long" if span == "long" else "recent",
        "seconds": ring.span_seconds,
        "rows": chart_rows(ring),
    }


async def coming(request: Request, queue: str, group: str) -> Listed:
    """The messages that the group would receive next."""
    source = await http_state(request).store.queue(queue)
    return await listed(lambda limit, _: source.peek(limit, group), None, NEXT_SHOWN, whole=True)


async def watch(request: Request, queue: str) -> Response:
    await known_queue(request, queue)
    group = request.query_params.get("group")

    def regions(sample: Sample) -> Regions:
        key = ("queue", queue, group, request.scope.get("root_path", ""))
        return history_of(request).once(key, lambda: _regions(request, sample, queue, group))

    return events(history_of(request), identity_of(request).name, regions)


def _regions(request: Request, sample: Sample, queue: str, group: str | None) -> Regions:
    looked = sample.queues.get(queue)
    if looked is None:
        return {}, None
    history = history_of(request)
    made = {"queue-live": fragment(request, "queue_live.html", live=live_context(history, looked))}
    return made, latest_row(history.series(queue, group or "").recent)


# -- what can be done ----------------------------------------------------------------------------------------------


async def pause(request: Request, queue: str) -> Response:
    await known_queue(request, queue)
    await (await http_state(request).store.queue(queue)).pause()
    return back(request, "queues", queue, notice="Paused: nothing is handed out until you resume.")


async def resume(request: Request, queue: str) -> Response:
    await known_queue(request, queue)
    await (await http_state(request).store.queue(queue)).resume()
    return back(request, "queues", queue, notice="Resumed.")


async def send(request: Request, queue: str) -> Response:
    form = await form_of(request)
    payload, content_type = form.payload()
    source = await http_state(request).store.queue(queue)
    message_id = await source.send(
        payload,
        content_type=content_type,
        priority=form.whole("priority") or 0,
        delay_seconds=form.seconds("delay_seconds"),
        ttl_seconds=form.seconds("ttl_seconds"),
        address=form.text("address"),
        key=form.text("key"),
        headers=form.headers(),
        created_by=form.sender,
    )
    return back(request, "queues", queue, "messages", message_id, notice="Sent.")


async def flush(request: Request, queue: str) -> Response:
    await known_queue(request, queue)
    form = await form_of(request)
    if form.text("confirm") != queue:
        raise InvalidInput(
            f"nothing was removed: to flush it, type the queue's name, not {shown(form.text('confirm'))}"
        )
    removed = await (await http_state(request).store.queue(queue)).flush()
    return back(request, "queues", queue, notice=f"Flushed: {figures.plural(removed, 'message')} removed.")


ROUTES = [
    Route("GET", "/queues/{queue}", show, Right.LOOK),
    Route("GET", "/queues/{queue}/events", watch, Right.LOOK),
    Route("POST", "/queues/{queue}/pause", pause, Right.OPERATE),
    Route("POST", "/queues/{queue}/resume", resume, Right.OPERATE),
    Route("POST", "/queues/{queue}/messages", send, Right.SEND),
    Route("POST", "/queues/{queue}/flush", flush, Right.MANAGE),
]
