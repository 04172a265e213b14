"""Dead letters grouped by fault, with actions for all letters of a fault."""

from __future__ import annotations

import hashlib
from collections import Counter
from datetime import datetime
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from penstock.client.aio.queue import AsyncQueue
from penstock.domain.errors import InvalidInput
from penstock.domain.fingerprints import fingerprint
from penstock.domain.results import DeadLetter
from penstock.domain.validation import shown
from penstock.servers.access import Right
from penstock.servers.http.auth import identity_of
from penstock.servers.http.dashboard import confirmation, figures
from penstock.servers.http.dashboard.forms import form_of
from penstock.servers.http.dashboard.history import history_of
from penstock.servers.http.dashboard.message_list import Listed, listed
from penstock.servers.http.dashboard.payloads import preview
from penstock.servers.http.dashboard.renderer import back, page
from penstock.servers.http.dashboard.visible_queues import known_queue
from penstock.servers.http.router import Route
from penstock.servers.http.state import http_state

# Faults are computed from the newest letters only, and the page says so.
EXAMINED = 1_000
SHOWN = 100
QUEUES_SHOWN = 200
ACTIONS = {"redrive": Right.OPERATE, "purge": Right.MANAGE}


class Fault(NamedTuple):
    """Dead letters of one group with the same fault; `mark` identifies it in forms."""

    mark: str
    group: str
    outcome: str
    text: str
    ids: list[str]
    attempts: str
    first_at: datetime
    last_at: datetime
    sample: str
    reason: str | None


async def show_all(request: Request) -> Response:
    """Every queue that has dead letters, most first."""
    identity = identity_of(request)
    sample = await history_of(request).latest()
    rows = [
        (name, group, stats)
        for name, queue in sample.queues.items()
        for group, stats in queue.groups.items()
        if stats.dead and identity.may(Right.LOOK, name)
    ]
    rows.sort(key=lambda row: (-row[2].dead, row[0]))
    return page(request, "dead_all.html", rows=rows[:QUEUES_SHOWN], hidden=max(0, len(rows) - QUEUES_SHOWN))


async def show(request: Request, queue: str) -> Response:
    await known_queue(request, queue)
    source = await http_state(request).store.queue(queue)
    group, wanted = request.query_params.get("group"), request.query_params.get("fault")
    stats = await source.stats()
    letters = await _newest(source, group)
    faults = faults_of(letters.items)
    chosen = next((fault for fault in faults if fault.mark == wanted), None)
    among = set(chosen.ids) if chosen is not None else None
    return page(
        request,
        "dead.html",
        queue=queue,
        group=group,
        groups={name: one.dead for name, one in stats.items()},
        total=sum(one.dead for name, one in stats.items() if group in (None, name)),
        examined=letters.examined,
        faults=faults,
        chosen=chosen,
        letters=[
            (letter, preview(letter.payload))
            for letter in letters.items
            if among is None or (letter.id in among and chosen is not None and letter.group == chosen.group)
        ][:SHOWN],
    )


async def _newest(source: AsyncQueue, group: str | None) -> Listed:
    return await listed(
        lambda limit, before: source.dead_letters(limit, group, before=before), lambda letter: letter, EXAMINED
    )


def faults_of(letters: list[DeadLetter]) -> list[Fault]:
    together: dict[tuple[str, str, str], list[DeadLetter]] = {}
    for letter in letters:
        together.setdefault((letter.group, str(letter.outcome), fingerprint(letter.reason)), []).append(letter)
    faults = [_fault(*key, several) for key, several in together.items()]
    return sorted(faults, key=lambda fault: (-len(fault.ids), fault.text))


def _fault(group: str, outcome: str, text: str, letters: list[DeadLetter]) -> Fault:
    attempts = Counter(letter.attempts for letter in letters)
    fewest, most = min(attempts), max(attempts)
    return Fault(
        hashlib.sha256("\0".join((group, outcome, text)).encode()).hexdigest()[:16],
        group,
        outcome,
        text,
        [letter.id for letter in letters],
        str(most) if fewest == most else f"{fewest}–{most}",
        min(letter.died_at for letter in letters),
        max(letter.died_at for letter in letters),
        preview(letters[0].payload),
        letters[0].reason,
    )


# -- all of a fault at once ------------------------------------------------------------------------------------------


async def ask(request: Request, queue: str) -> Response:
    """Ask before an action on many letters: which action, how many, and whether it can be undone."""
    await known_queue(request, queue)
    action = _action(request.query_params.get("action"))
    fault = await _find(request, queue, request.query_params.get("group"), request.query_params.get("fault"))
    return page(
        request,
        "dead_ask.html",
        queue=queue,
        action=action,
        fault=fault,
        mark=confirmation.mark_of(action, identity_of(request).name, queue, fault.mark),
    )


async def redrive(request: Request, queue: str) -> Response:
    fault = await _confirmed(request, queue, "redrive")
    source = await http_state(request).store.queue(queue)
    count = await source.redrive(fault.ids, group=fault.group)
    notice = f"Redriven: {figures.plural(count, 'message')} ready again in group {shown(fault.group)}."
    return back(request, "queues", queue, "dead", notice=notice)


async def purge(request: Request, queue: str) -> Response:
    fault = await _confirmed(request, queue, "purge")
    count = await (await http_state(request).store.queue(queue)).purge(fault.ids, group=fault.group)
    return back(request, "queues", queue, "dead", notice=f"Purged: {figures.plural(count, 'dead letter')} removed.")


async def _confirmed(request: Request, queue: str, action: str) -> Fault:
    await known_queue(request, queue)
    form = await form_of(request)
    wanted = form.text("fault") or ""
    confirmation.check(form.text("mark"), action, identity_of(request).name, queue, wanted)
    return await _find(request, queue, form.text("group"), wanted)


async def _find(request: Request, queue: str, group: str | None, wanted: str | None) -> Fault:
    """Read the letters again, to leave out those that were redriven meanwhile."""
    source = await http_state(request).store.queue(queue)
    faults = faults_of((await _newest(source, group)).items)
    fault = next((one for one in faults if one.mark == wanted), None)
    if fault is None:
        raise InvalidInput("no dead letter died of this any more: somebody else was quicker")
    return fault


def _action(given: str | None) -> str:
    if given not in ACTIONS:
        raise InvalidInput(f"dead letters can be redriven or purged, not {shown(given)}")
    return given


ROUTES = [
    Route("GET", "/dead", show_all, Right.LOOK),
    Route("GET", "/queues/{queue}/dead", show, Right.LOOK),
    Route("GET", "/queues/{queue}/dead/ask", ask, Right.OPERATE),
    Route("POST", "/queues/{queue}/dead/redrive", redrive, Right.OPERATE),
    Route("POST", "/queues/{queue}/dead/purge", purge, Right.MANAGE),
]
