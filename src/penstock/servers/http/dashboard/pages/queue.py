"""One queue: its groups, its consumers, its policy, and what can be done with it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.errors import InvalidInput, NotFound
from penstock.domain.names import nearest, shown
from penstock.domain.policy import Policy
from penstock.servers.access import Right
from penstock.servers.http.auth import identity_of
from penstock.servers.http.dashboard import figures
from penstock.servers.http.dashboard.forms import Form, form_of
from penstock.servers.http.dashboard.history import History, history_of
from penstock.servers.http.dashboard.known import known_queue
from penstock.servers.http.dashboard.listing import Listed, listed
from penstock.servers.http.dashboard.live import Regions, events
from penstock.servers.http.dashboard.pages.consumers import rows_of
from penstock.servers.http.dashboard.pages.overview import drain_of, judged
from penstock.servers.http.dashboard.recipes import queue_recipes
from penstock.servers.http.dashboard.rendering import back, fragment, page
from penstock.servers.http.dashboard.series import CHART_COLUMNS, Series, chart_row, chart_rows
from penstock.servers.http.routing import Route
from penstock.servers.http.sampling import QueueSample, Sample
from penstock.servers.http.site import site_of

NEXT_SHOWN = 10
BATCHES_SHOWN = 10


async def show(request: Request, queue: str) -> Response:
    site = site_of(request)
    info = await known_queue(request, queue)
    source = await site.store.queue(queue)
    policy, stats = await source.policy(), await source.stats()
    looked = QueueSample(msgspec.structs.replace(info, policy=policy), stats)
    group = chosen_group(request, looked)
    return page(
        request,
        "queue.html",
        info=looked.info,
        group=group,
        live=live_context(history_of(request), looked),
        consumers=rows_of(await source.consumers(), await source._read(source.engine.now)),
        chart=chart_of(history_of(request).series(queue, group), request.query_params.get("range")),
        columns=CHART_COLUMNS,
        coming=await coming(request, queue, group),
        batches=(await source.batches())[:BATCHES_SHOWN],
        fields=fields_of(policy),
        recipes=queue_recipes(request, queue, group),
    )


def chosen_group(request: Request, queue: QueueSample) -> str:
    """The group that the charts show: the one asked for, else the primary one."""
    wanted = request.query_params.get("group")
    if wanted in queue.groups:
        return wanted
    primary = queue.info.policy.default_group
    if wanted and wanted != primary:
        raise NotFound(f"queue {shown(queue.info.name)} has no group {shown(wanted)}{nearest(wanted, queue.groups)}")
    return primary if primary in queue.groups or not queue.groups else next(iter(queue.groups))


def live_context(history: History, queue: QueueSample) -> dict[str, Any]:
    groups = []
    primary = queue.info.policy.default_group
    for name, stats in sorted(queue.groups.items(), key=lambda one: (one[0] != primary, one[0])):
        series = history.series(queue.info.name, name)
        rates = series.rates()
        level, note = judged(queue, stats, rates)
        drain = drain_of(series, stats, queue.info.policy.paused)
        groups.append({"name": name, "stats": stats, "rates": rates, "level": level, "note": note, "drain": drain})
    return {"queue": queue.info, "groups": groups}


def chart_of(series: Series, span: str | None) -> dict[str, object]:
    ring = series.long if span == "long" else series.recent
    return {"range": "long" if span == "long" else "recent", "rows": chart_rows(ring)}


async def coming(request: Request, queue: str, group: str) -> Listed:
    """What the group would receive next."""
    source = await site_of(request).store.queue(queue)
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
    points = list(history.series(queue, group or "").recent.points())[-2:]
    return made, chart_row(*points) if len(points) == 2 and points[1].at > points[0].at else None


# -- what can be done ----------------------------------------------------------------------------------------------


async def pause(request: Request, queue: str) -> Response:
    await known_queue(request, queue)
    await (await site_of(request).store.queue(queue)).pause()
    return back(request, "queues", queue, told="Paused: nothing is handed out until you resume.")


async def resume(request: Request, queue: str) -> Response:
    await known_queue(request, queue)
    await (await site_of(request).store.queue(queue)).resume()
    return back(request, "queues", queue, told="Resumed.")


async def send(request: Request, queue: str) -> Response:
    form = await form_of(request)
    payload, content_type = form.payload()
    source = await site_of(request).store.queue(queue)
    message_id = await source.send(
        payload,
        content_type=content_type,
        priority=form.whole("priority") or 0,
        delay_seconds=form.number("delay_seconds"),
        ttl_seconds=form.number("ttl_seconds"),
        address=form.text("address"),
        key=form.text("key"),
        headers=form.headers(),
        created_by=form.sender,
    )
    return back(request, "queues", queue, "messages", message_id, told="Sent.")


async def change_policy(request: Request, queue: str) -> Response:
    await known_queue(request, queue)
    form = await form_of(request)
    changes = _changes(form)
    if not changes:
        return back(request, "queues", queue, told="The policy is as it was: no field had another value.")
    await site_of(request).store.queue(queue, **changes)
    told = ", ".join(f"{name} is now {_spelled(value) or 'none'}" for name, value in changes.items())
    return back(request, "queues", queue, told=f"Policy changed: {told}.")


def _changes(form: Form) -> dict[str, Any]:
    """Only what was changed on the page: two people who edit different fields do not undo each other."""
    return {
        field["name"]: form.policy_value(field["name"], field["kind"])
        for field in fields_of(Policy())
        if form.differs(field["name"], f"was_{field['name']}")
    }


def fields_of(policy: Policy) -> list[dict[str, Any]]:
    """Every field of the policy with the kind of its value; `paused` has buttons of its own."""
    plain = Policy()
    fields = []
    for name in Policy.__struct_fields__:
        if name == "paused":
            continue
        value = getattr(policy, name)
        kind = "flag" if isinstance(value, bool) else KINDS.get(name, "seconds")
        told = figures.duration(value) if name.endswith("_seconds") and value is not None and value >= 60 else ""
        fields.append(
            {
                "name": name,
                "kind": kind,
                "value": value,
                "text": _spelled(value),
                "sent": _spelled(value).lower() if kind == "flag" else _spelled(value),
                "told": told,
                "is_default": value == getattr(plain, name),
            }
        )
    return fields


KINDS = {
    "max_retries": "whole",
    "backoff_factor": "number",
    "delivery": "delivery",
    "shards": "whole",
    "primary_group": "text",
    "max_payload_bytes": "whole",
}


def _spelled(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.10g}" if isinstance(value, float) else str(value)


async def flush(request: Request, queue: str) -> Response:
    await known_queue(request, queue)
    form = await form_of(request)
    if form.text("confirm") != queue:
        raise InvalidInput(
            f"nothing was removed: to flush it, type the queue's name, not {shown(form.text('confirm'))}"
        )
    removed = await (await site_of(request).store.queue(queue)).flush()
    return back(request, "queues", queue, told=f"Flushed: {figures.plural(removed, 'message')} removed.")


async def seek(request: Request, queue: str) -> Response:
    await known_queue(request, queue)
    form = await form_of(request)
    source = await site_of(request).store.queue(queue)
    group = form.text("group") or ""
    position = await source.seek(group, _target(form))
    return back(request, "queues", queue, told=f"Group {shown(group)} now stands at position {position}.")


def _target(form: Form) -> int | str | datetime:
    where = form.text("target")
    if where == "time":
        return form.time("at") or datetime.now(UTC)
    if where == "position":
        return form.whole("position") or 0
    return where or "end"


ROUTES = [
    Route("GET", "/queues/{queue}", show, Right.LOOK),
    Route("GET", "/queues/{queue}/events", watch, Right.LOOK),
    Route("POST", "/queues/{queue}/pause", pause, Right.OPERATE),
    Route("POST", "/queues/{queue}/resume", resume, Right.OPERATE),
    Route("POST", "/queues/{queue}/messages", send, Right.SEND),
    Route("POST", "/queues/{queue}/policy", change_policy, Right.MANAGE),
    Route("POST", "/queues/{queue}/flush", flush, Right.MANAGE),
    Route("POST", "/queues/{queue}/seek", seek, Right.MANAGE),
]
