"""Pages of messages, with marks from which the next page continues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.errors import InvalidInput
from penstock.domain.lifecycle import LIVE, State
from penstock.domain.results import LeaseInfo, MessagePage, MessageState, MessageSummary
from penstock.domain.validation import from_time, shown

if TYPE_CHECKING:
    from penstock.engines.contract import Engine

# A place in a listing: integers whose meaning only the engine knows.
Place = tuple[int, ...]
Found = tuple[Place, MessageSummary]


def place_of(after: str | None, start: Place) -> Place:
    """The place that a mark names, or the start."""
    if after is None:
        return start
    parts = after.split("-") if len(after) <= 100 else []
    if len(parts) != len(start) or not all(part.isascii() and part.isdigit() for part in parts):
        raise InvalidInput(f"after must be `next` of the page before, not {shown(after)}")
    return tuple(int(part) for part in parts)


def page_of(found: Iterable[Found], limit: int) -> MessagePage:
    """A page in the order of places; one more item than `limit` shows that there is another page."""
    ordered = sorted(found, key=lambda one: one[0])
    following = "-".join(map(str, ordered[limit - 1][0])) if len(ordered) > limit else None
    return MessagePage([one for _, one in ordered[:limit]], following)


def members_with_states(
    page: MessagePage, states: Callable[[str, list[str]], Sequence[MessageState | None]]
) -> MessagePage:
    """Members of a batch with their states in the primary groups of their queues; `states` returns those of one
    queue."""
    found: dict[tuple[str | None, str], MessageState | None] = {}
    for queue in sorted({one.queue for one in page.messages if one.queue is not None}):
        ids = [one.id for one in page.messages if one.queue == queue]
        found.update({(queue, one): state for one, state in zip(ids, states(queue, ids), strict=True)})
    return with_states(page, [found[one.queue, one.id] for one in page.messages])


def with_states(page: MessagePage, states: Sequence[MessageState | None]) -> MessagePage:
    """The same messages with their states in a group, without those that no longer exist."""
    found = zip(page.messages, states, strict=True)
    known = [msgspec.structs.replace(one, state=now.state, reason=now.reason) for one, now in found if now is not None]
    return MessagePage(known, page.next)


def leased_page(leases: Iterable[LeaseInfo], limit: int) -> MessagePage:
    return page_of((((one.position,), _leased(one)) for one in leases), limit)


def _leased(one: LeaseInfo) -> MessageSummary:
    return MessageSummary(
        one.id,
        State.LEASED,
        one.position,
        one.created_at,
        one.attempt,
        due_at=one.ends_at,
        consumer=one.consumer,
        leased_at=one.leased_at,
    )


# -- of any state ------------------------------------------------------------------------------------------------------


def page(engine: Engine, queue: str, group: str, state: State, limit: int, after: str | None) -> MessagePage:
    """Messages of a group in a state: live ones in the order of the engine, ended ones newest first."""
    if state in LIVE:
        return engine.live(queue, group, state, limit, after)
    return (
        _succeeded(engine, queue, group, limit, after)
        if state is State.SUCCEEDED
        else _dead(engine, queue, group, state, limit, after)
    )


def _succeeded(engine: Engine, queue: str, group: str, limit: int, after: str | None) -> MessagePage:
    before = None if after is None else place_of(after, (0,))[0]
    archived = engine.archive(queue, group, State.SUCCEEDED, limit, before)
    found = [
        MessageSummary(one.message.id, one.outcome, one.message.position, one.message.created_at, one.attempts)
        for one in archived
    ]
    return MessagePage(found, str(found[-1].position) if len(found) == limit else None)


def _dead(engine: Engine, queue: str, group: str, state: State, limit: int, after: str | None) -> MessagePage:
    edge = None if after is None else (*place_of(after, (0, 0)), group)
    letters = engine.dead_letters(queue, group, state, limit, edge)  # type: ignore[arg-type]  # two numbers and a name
    found = [
        MessageSummary(one.id, one.outcome, one.position, one.created_at, one.attempts, reason=one.reason)
        for one in letters
    ]
    if len(letters) < limit:
        return MessagePage(found)
    return MessagePage(found, f"{from_time('died_at', letters[-1].died_at)}-{letters[-1].position}")
