"""One message: content, audit trail, state in each group, and actions."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from penstock.client.aio.queue import AsyncQueue
from penstock.client.settlements import Held
from penstock.domain.errors import InvalidInput, NotFound, Refused
from penstock.domain.identity import check_id
from penstock.domain.lifecycle import DEAD_OUTCOMES, State
from penstock.domain.message import JSON, Message
from penstock.domain.results import AuditEntry, Explanation, LeaseInfo
from penstock.domain.settlement import Ack, Nak, Reject, Reschedule, Settlement
from penstock.domain.validation import shown
from penstock.servers.access import Right
from penstock.servers.http.auth import identity_of
from penstock.servers.http.dashboard import confirmation, figures
from penstock.servers.http.dashboard.forms import Form, form_of
from penstock.servers.http.dashboard.payloads import payload_view
from penstock.servers.http.dashboard.recipes import message_recipes
from penstock.servers.http.dashboard.renderer import back, page
from penstock.servers.http.dashboard.visible_queues import known_queue
from penstock.servers.http.router import Route
from penstock.servers.http.state import http_state

# A message retried without limit has a long trail: show its beginning and its end.
TRAIL_BEGINNING, TRAIL_END = 100, 200
GROUPS_SHOWN = 20


class Standing(NamedTuple):
    """The state of the message in one group; `lease` is set while it is leased."""

    explanation: Explanation
    lease: LeaseInfo | None

    @property
    def is_dead(self) -> bool:
        return self.explanation.state in DEAD_OUTCOMES


class Step(NamedTuple):
    entry: AuditEntry
    after_seconds: float | None


async def show(request: Request, queue: str, id: str) -> Response:
    await known_queue(request, queue)
    source = await http_state(request).store.queue(queue)
    message: Message = await source.find(check_id(id))
    primary = (await source.policy()).default_group
    groups = sorted(await source.groups(), key=lambda one: (one != primary, one))[:GROUPS_SHOWN] or [primary]
    trail = await source.audit(id)
    return page(
        request,
        "message.html",
        queue=queue,
        message=message,
        view=payload_view(message.payload, message.content_type),
        steps=steps_of(trail[:TRAIL_BEGINNING] + trail[TRAIL_BEGINNING:][-TRAIL_END:]),
        left_out=max(0, len(trail) - TRAIL_BEGINNING - TRAIL_END),
        standings=[one for group in groups if (one := await _standing(source, message, group)) is not None],
        purge_mark=lambda group: confirmation.mark_of("purge", identity_of(request).name, queue, group, id),
        recipes=message_recipes(request, queue, id, groups[0]),
    )


def steps_of(trail: list[AuditEntry]) -> list[Step]:
    """The steps, each with the time since the previous one."""
    before: datetime | None = None
    steps = []
    for entry in trail:
        steps.append(Step(entry, None if before is None else (entry.at - before).total_seconds()))
        before = entry.at
    return steps


async def _standing(source: AsyncQueue, message: Message, group: str) -> Standing | None:
    try:
        explanation = await source.explain(message.id, group)
    except (NotFound, Refused):  # a group that is read as a stream has no state per message
        return None
    lease = None
    if explanation.state is State.LEASED:
        leases = await source.executor.read(lambda: source.engine.leases(source.name, group, ids=[message.id]))
        lease = leases[0] if leases else None
    return Standing(explanation, lease)


async def download(request: Request, queue: str, id: str) -> Response:
    """The payload as a download that browsers do not run: the sender chose the content type."""
    await known_queue(request, queue)
    message: Message = await (await http_state(request).store.queue(queue)).find(check_id(id))
    ending = "json" if message.content_type == JSON else "bin"
    headers = {
        "content-disposition": f'attachment; filename="{message.id}.{ending}"',
        "content-security-policy": "sandbox; default-src 'none'; frame-ancestors 'none'",
    }
    return Response(message.payload, headers=headers, media_type="application/octet-stream")


# -- what can be done ----------------------------------------------------------------------------------------------


async def settle(request: Request, queue: str, id: str) -> Response:
    """Settle in place of the consumer, with the lease that the page showed, not with a later one."""
    await known_queue(request, queue)
    form = await form_of(request)
    source = await http_state(request).store.queue(queue)
    group, token = form.text("group") or "", form.whole("token") or 0
    position = await source.executor.read(lambda: source.engine.position(queue, check_id(id)))
    settlement = _settlement(form, Held(id, token, queue, group, position))
    (result,) = await source.settle([settlement])
    if not result.ok:
        raise result.error if result.error is not None else Refused("the lease was lost")
    return back(
        request, "queues", queue, "messages", id, notice=f"The message is now {result.state} in {shown(group)}."
    )


def _settlement(form: Form, held: Held) -> Settlement:
    action, reason = form.text("action"), form.text("reason")
    if action == "ack":
        return Ack(held, reason)
    if action == "nak":
        return Nak(held, reason, form.seconds("delay_seconds"))
    if action == "reject":
        return Reject(held, reason)
    if action == "reschedule":
        return Reschedule(held, form.seconds("delay_seconds") or 0, reason)
    raise InvalidInput(f"{shown(action)} settles nothing: use ack, nak, reject or reschedule")


async def redrive(request: Request, queue: str, id: str) -> Response:
    await known_queue(request, queue)
    form = await form_of(request)
    source = await http_state(request).store.queue(queue)
    count = await source.redrive([id], group=form.text("group"))
    notice = (
        "Redriven: it is ready again, with attempts starting anew." if count else "It was not a dead letter any more."
    )
    return back(request, "queues", queue, "messages", id, notice=notice, kind="good" if count else "bad")


async def purge(request: Request, queue: str, id: str) -> Response:
    await known_queue(request, queue)
    form = await form_of(request)
    group = form.text("group") or ""
    confirmation.check(form.text("mark"), "purge", identity_of(request).name, queue, group, id)
    count = await (await http_state(request).store.queue(queue)).purge([id], group=group)
    notice = f"Purged: {figures.plural(count, 'dead letter')} removed."
    return back(request, "queues", queue, "dead", notice=notice)


_MESSAGE = "/queues/{queue}/messages/{id}"
ROUTES = [
    Route("GET", _MESSAGE, show, Right.LOOK),
    Route("GET", f"{_MESSAGE}/payload", download, Right.LOOK),
    Route("POST", f"{_MESSAGE}/settle", settle, Right.RECEIVE),
    Route("POST", f"{_MESSAGE}/redrive", redrive, Right.OPERATE),
    Route("POST", f"{_MESSAGE}/purge", purge, Right.MANAGE),
]
