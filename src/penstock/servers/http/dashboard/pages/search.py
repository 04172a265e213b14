"""Search: by id, address and batch with an index, by time and outcome along a bounded part of the log."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from penstock.client.aio.queue import MAX_POSITION, AsyncQueue
from penstock.domain import refusals
from penstock.domain.errors import InvalidInput, NotFound, PenstockError
from penstock.domain.identity import check_id
from penstock.domain.lifecycle import DEAD_OUTCOMES, LIVE, State
from penstock.domain.message import Message
from penstock.domain.results import AddressState, Archived, BatchInfo, DeadLetter, MessageState, QueueInfo
from penstock.domain.validation import from_time, shown
from penstock.servers.access import Right
from penstock.servers.http.dashboard.figures import second
from penstock.servers.http.dashboard.forms import time_of
from penstock.servers.http.dashboard.message_list import Listed, listed
from penstock.servers.http.dashboard.payloads import preview
from penstock.servers.http.dashboard.renderer import page
from penstock.servers.http.dashboard.visible_queues import known_queue, visible_queues
from penstock.servers.http.router import Route, path_to
from penstock.servers.http.state import http_state

SHOWN = 50
# Messages examined before a search stops and offers to continue.
EXAMINED = 2_000
# Fewer for ended messages, each of which needs a query of its audit trail.
ENDED_EXAMINED = 500
# Names are looked up in every queue; with more queues than this the search needs a queue.
QUEUES_EXAMINED = 300


class SearchQuery(NamedTuple):
    text: str
    queue: str | None
    group: str | None
    outcome: State | None
    since: datetime | None
    until: datetime | None
    batch: str | None
    before: int | None

    @property
    def walks(self) -> bool:
        return bool(self.outcome or self.since or self.until or self.batch)


class Result(NamedTuple):
    id: str
    at: datetime
    state: str
    reason: str | None
    preview: str


class Named(NamedTuple):
    """Queues, batches and addresses of the searched name."""

    queues: list[QueueInfo]
    addresses: list[tuple[str, AddressState]]
    batches: list[BatchInfo]

    @property
    def is_empty(self) -> bool:
        return not (self.queues or self.addresses or self.batches)


async def show(request: Request) -> Response:
    query = _query_of(request)
    queues = await visible_queues(request)
    chosen = [info for info in queues if query.queue in (None, info.name)][:QUEUES_EXAMINED]
    if query.queue is not None and not chosen:
        known = [info.name for info in queues]
        raise refusals.no_queue(query.queue, known)
    message_id = _as_id(query.text)
    if message_id is not None:
        holders = await _holders(request, chosen, message_id)
        if len(holders) == 1:
            return RedirectResponse(path_to(request.scope, "queues", holders[0], "messages", message_id), 303)
        return _page(request, query, queues, holders=holders, message_id=message_id)
    named = await _named(request, query.text, chosen) if query.text else None
    if query.queue is None or (query.text and not query.walks):
        return _page(request, query, queues, named=named)
    if query.outcome in LIVE:
        wanted = urlencode({"state": str(query.outcome), **({"group": query.group} if query.group else {})})
        return RedirectResponse(f"{path_to(request.scope, 'queues', query.queue, 'messages')}?{wanted}", 303)
    if query.group is not None:
        await (await http_state(request).store.queue(query.queue)).existing_group(query.group)
    found = await _walk(request, query, query.queue)
    return _page(request, query, queues, named=named, found=found, results=await _results(request, query, found.items))


def _page(request: Request, query: SearchQuery, queues: list[QueueInfo], **context: Any) -> Response:
    found: Listed | None = context.pop("found", None)
    more = None
    if found is not None and found.more is not None:
        more = "?" + urlencode({**request.query_params, "before": found.more})
    nothing: dict[str, Any] = {"holders": None, "message_id": None, "named": None, "results": None}
    return page(
        request,
        "search.html",
        query=query,
        queues=queues,
        outcomes=[str(state) for state in State],
        examined=None if found is None else found.examined,
        more=more,
        **{**nothing, **context},
    )


def _query_of(request: Request) -> SearchQuery:
    given = {name: value for name, value in request.query_params.items() if value}
    outcome = given.get("outcome")
    if outcome is not None and outcome not in list(State):
        raise InvalidInput(f"{shown(outcome)} is not a state ({', '.join(State)})")
    since, until = time_of("since", given.get("since")), time_of("until", given.get("until"))
    if since is not None and until is not None and until < since:
        raise InvalidInput(f"since {second(since)} is after until {second(until)}: nothing lies between them")
    return SearchQuery(
        given.get("q", "").strip()[:255],
        given.get("queue"),
        given.get("group"),
        None if outcome is None else State(outcome),
        since,
        until,
        given.get("batch"),
        _position(given.get("before")),
    )


def _position(given: str | None) -> int | None:
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and int(given[:20]) <= MAX_POSITION):
        raise InvalidInput(f"before must be the position of a message, 0 to {MAX_POSITION}, not {shown(given)}")
    return int(given)


# -- by name ---------------------------------------------------------------------------------------------------------


def _as_id(text: str) -> str | None:
    try:
        return check_id(text.lower())
    except InvalidInput:
        return None


async def _holders(request: Request, queues: list[QueueInfo], message_id: str) -> list[str]:
    """The queues with a message of this id; several are possible, because senders choose ids."""
    engine = http_state(request).store.engine

    def has(queue: str) -> bool:
        try:
            engine.find(queue, message_id)
        except NotFound:
            return False
        return True

    return await http_state(request).store.executor.read(lambda: [info.name for info in queues if has(info.name)])


async def _named(request: Request, text: str, queues: list[QueueInfo]) -> Named:
    engine = http_state(request).store.engine

    def addresses() -> list[tuple[str, AddressState]]:
        looked = ((info.name, engine.address(info.name, text)) for info in queues)
        return [(name, state) for name, state in looked if state is not None]

    def batches() -> list[BatchInfo]:
        found = []
        for info in queues:
            try:
                found.append(engine.batch(info.name, text))
            except PenstockError:
                continue
        return found

    store = http_state(request).store
    alike = [info for info in queues if text.casefold() in info.name.casefold()][:SHOWN]
    return Named(alike, await store.executor.read(addresses), await store.executor.read(batches))


# -- along the log ---------------------------------------------------------------------------------------------------


async def _walk(request: Request, query: SearchQuery, queue: str) -> Listed:
    await known_queue(request, queue)
    source = await http_state(request).store.queue(queue)
    after = 0 if query.since is None else await _position_at(source, query.since)
    upto = query.before
    if query.until is not None:
        last = await _position_at(source, query.until)
        upto = last + 1 if upto is None else min(upto, last + 1)
    if query.outcome in DEAD_OUTCOMES:
        return await _walk_dead(source, query, after, upto)
    if query.outcome is not None:
        return await _walk_archive(source, query, after, upto)

    def fetch(limit: int, before: int | None) -> Any:
        last = None if before is None else before - 1
        return source.executor.read(lambda: source.engine.browse(queue, after, last, limit, backwards=True))

    return await listed(fetch, lambda one: one.position, SHOWN, before=upto, keep=_wants(query), examine=EXAMINED)


async def _position_at(source: AsyncQueue, at: datetime) -> int:
    moment = from_time("time", at)
    return await source.executor.read(lambda: source.engine.position_at(source.name, moment))


async def _walk_archive(source: AsyncQueue, query: SearchQuery, after: int, upto: int | None) -> Listed:
    """Filter outcomes here: the engine would read on until it has found enough."""
    wants = _wants(query)
    found = await listed(
        lambda limit, before: source.archive(limit, query.group, before=before),
        lambda one: one.message.position,
        SHOWN,
        before=upto,
        keep=lambda one: one.outcome is query.outcome and one.message.position > after and wants(one.message),
        examine=ENDED_EXAMINED,
    )
    return found._replace(more=found.more if found.more is None or found.more > after else None)


async def _walk_dead(source: AsyncQueue, query: SearchQuery, after: int, upto: int | None) -> Listed:
    """By time of death, the order of dead letters."""

    def keep(letter: DeadLetter) -> bool:
        fits = after < letter.position and (upto is None or letter.position < upto)
        return letter.outcome is query.outcome and fits

    found = await listed(
        lambda limit, before: source.dead_letters(limit, query.group, before=before),
        lambda letter: letter,
        SHOWN,
        keep=keep,
        examine=EXAMINED,
    )
    return found._replace(more=None)


def _wants(query: SearchQuery) -> Any:
    def wants(message: Message) -> bool:
        in_time = query.until is None or message.created_at <= query.until
        return in_time and (query.batch is None or message.batch == query.batch)

    return wants


async def _results(request: Request, query: SearchQuery, items: list[Any]) -> list[Result]:
    source = await http_state(request).store.queue(query.queue or "")
    group = query.group or (await source.policy()).default_group
    live = [item.id for item in items if isinstance(item, Message)]
    states = await source.executor.read(lambda: source.engine.states(source.name, group, live)) if live else []
    known = dict(zip(live, states, strict=True))
    return [_result(item, known) for item in items]


def _result(item: Any, known: dict[str, MessageState | None]) -> Result:
    if isinstance(item, DeadLetter):
        return Result(item.id, item.created_at, str(item.outcome), item.reason, preview(item.payload))
    if isinstance(item, Archived):
        one = item.message
        return Result(one.id, one.created_at, str(item.outcome), item.reason, preview(one.payload))
    # One that was trimmed between the two queries has none.
    found = known[item.id]
    state, reason = ("", None) if found is None else (str(found.state), found.reason)
    return Result(item.id, item.created_at, state, reason, preview(item.payload))


ROUTES = [Route("GET", "/search", show, Right.LOOK)]
