"""Move the cursor of a group, after a confirmation with the number of messages concerned."""

from __future__ import annotations

from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.errors import InvalidInput
from penstock.domain.validation import shown
from penstock.servers.access import Right
from penstock.servers.http.auth import identity_of
from penstock.servers.http.dashboard import confirmation
from penstock.servers.http.dashboard.forms import Form, form_of
from penstock.servers.http.dashboard.renderer import back, page
from penstock.servers.http.dashboard.visible_queues import known_queue
from penstock.servers.http.router import Route
from penstock.servers.http.state import http_state


async def seek(request: Request, queue: str) -> Response:
    await known_queue(request, queue)
    form = await form_of(request)
    source = await http_state(request).store.queue(queue)
    group, target = form.text("group") or "", _target(form)
    words = ("seek", identity_of(request).name, queue, group, str(target))
    if form.text("mark"):
        confirmation.check(form.text("mark"), *words)
    else:
        preview = await source.preview_seek(group, target)
        if preview.passed_by or preview.read_again:
            return page(
                request,
                "seek_ask.html",
                queue=queue,
                group=group,
                preview=preview,
                fields={name: form.text(name) or "" for name in ("group", "target", "at", "position")},
                mark=confirmation.mark_of(*words),
            )
    position = await source.seek(group, target)
    return back(request, "queues", queue, notice=f"Group {shown(group)} now stands at position {position}.")


def _target(form: Form) -> int | str | datetime:
    """The target; there is no default."""
    where = form.text("target")
    if where == "time":
        at = form.time("at")
        if at is None:
            raise InvalidInput("at is empty: moving a group to a time needs one, such as 2026-11-15T09:30")
        return at
    if where == "position":
        position = form.whole("position")
        if position is None:
            raise InvalidInput("position is empty: moving a group to a position needs a number")
        return position
    if where not in ("start", "end"):
        raise InvalidInput(f"a group is moved to start, end, time or position, not {shown(where)}")
    return where


ROUTES = [Route("POST", "/queues/{queue}/seek", seek, Right.MANAGE)]
