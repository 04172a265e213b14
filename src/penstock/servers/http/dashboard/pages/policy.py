"""The policy of a queue: the form, and a confirmation before a shorter retention removes messages."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.policy import FIELDS, Policy
from penstock.servers.access import Right
from penstock.servers.http.auth import identity_of
from penstock.servers.http.dashboard import confirmation, figures
from penstock.servers.http.dashboard.forms import Form, form_of
from penstock.servers.http.dashboard.renderer import back, page
from penstock.servers.http.dashboard.visible_queues import known_queue
from penstock.servers.http.router import Route
from penstock.servers.http.state import http_state


async def change_policy(request: Request, queue: str) -> Response:
    await known_queue(request, queue)
    form = await form_of(request)
    changes = _changes(form)
    if not changes:
        return back(request, "queues", queue, notice="The policy is as it was: no field had another value.")
    source = await http_state(request).store.queue(queue)
    words = ("policy", identity_of(request).name, queue, *(f"{name}={value}" for name, value in changes.items()))
    if form.text("mark"):
        confirmation.check(form.text("mark"), *words)
    else:
        preview = await source.preview_retention(**changes)
        if preview.messages or preview.dead_letters:
            mark = confirmation.mark_of(*words)
            return page(
                request,
                "policy_ask.html",
                queue=queue,
                changes=_asked(form, await source.policy(), changes),
                preview=preview,
                mark=mark,
            )
    await http_state(request).store.queue(queue, **changes)
    notice = ", ".join(f"{name} is now {_spelled(value) or 'none'}" for name, value in changes.items())
    return back(request, "queues", queue, notice=f"Policy changed: {notice}.")


def _changes(form: Form) -> dict[str, Any]:
    """Only the fields that were changed on the page, so that concurrent edits of other fields are kept."""
    return {
        name: form.policy_value(field)
        for name, field in FIELDS.items()
        if name != "paused" and form.differs(name, f"was_{name}")
    }


def _asked(form: Form, policy: Policy, changes: dict[str, Any]) -> list[dict[str, str]]:
    """Each changed field: current value, new value, and the text in the form."""
    return [
        {
            "name": name,
            "now": _shown_value(name, getattr(policy, name)),
            "then": _shown_value(name, value),
            "value": form.text(name) or "",
            "was": form.text(f"was_{name}") or "",
        }
        for name, value in changes.items()
    ]


def _shown_value(name: str, value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool) and name.endswith("_seconds"):
        return figures.duration(value)
    return _spelled(value) or "none"


def fields_of(policy: Policy) -> list[dict[str, Any]]:
    """The rows of the form, from the table of policy fields; `paused` has buttons of its own."""
    rows = []
    for name, field in FIELDS.items():
        if name == "paused":
            continue
        value = getattr(policy, name)
        is_long = field.kind == "seconds" and value is not None and value >= 60
        rows.append(
            {
                "name": name,
                "kind": field.kind,
                "description": field.description,
                "choices": field.choices,
                "value": value,
                "text": _spelled(value),
                "sent": _spelled(value).lower() if field.kind == "boolean" else _spelled(value),
                "duration": figures.duration(value) if is_long else "",
                "is_default": value == field.default,
            }
        )
    return rows


def _spelled(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.10g}" if isinstance(value, float) else str(value)


ROUTES = [Route("POST", "/queues/{queue}/policy", change_policy, Right.MANAGE)]
