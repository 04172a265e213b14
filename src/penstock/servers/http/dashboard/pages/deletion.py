"""Delete a queue, after a confirmation with the number of its messages."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.errors import InvalidInput
from penstock.domain.validation import shown
from penstock.servers.access import Right
from penstock.servers.http.auth import identity_of
from penstock.servers.http.dashboard import confirmation, figures
from penstock.servers.http.dashboard.forms import form_of
from penstock.servers.http.dashboard.history import history_of
from penstock.servers.http.dashboard.renderer import back, page
from penstock.servers.http.dashboard.visible_queues import known_queue
from penstock.servers.http.router import Route
from penstock.servers.http.state import http_state


async def ask(request: Request, queue: str) -> Response:
    await known_queue(request, queue)
    source = await http_state(request).store.queue(queue)
    stats = await source.stats()
    return page(
        request,
        "delete_ask.html",
        queue=queue,
        count=await source.count(),
        dead=sum(one.dead for one in stats.values()),
        groups=len(stats),
        mark=confirmation.mark_of("delete", identity_of(request).name, queue),
    )


async def delete(request: Request, queue: str) -> Response:
    await known_queue(request, queue)
    form = await form_of(request)
    if form.text("confirm") != queue:
        raise InvalidInput(
            f"nothing was removed: to delete it, type the queue's name, not {shown(form.text('confirm'))}"
        )
    confirmation.check(form.text("mark"), "delete", identity_of(request).name, queue)
    state = http_state(request)
    count = await (await state.store.queue(queue)).delete()
    state.queues_seen.pop(queue, None)
    await history_of(request).refresh()
    return back(request, notice=f"Queue {shown(queue)} is deleted, with {figures.plural(count, 'message')}.")


ROUTES = [
    Route("GET", "/queues/{queue}/delete", ask, Right.MANAGE),
    Route("POST", "/queues/{queue}/delete", delete, Right.MANAGE),
]
