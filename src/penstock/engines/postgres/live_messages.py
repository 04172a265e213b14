"""Pages of live messages by state, and of the members of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.domain.lifecycle import State
from penstock.domain.results import MessagePage, MessageSummary
from penstock.domain.timestamps import to_time
from penstock.engines.pages import Found, page_of, place_of
from penstock.engines.postgres.calls import SQL
from penstock.engines.postgres.connection import Database
from penstock.engines.postgres.rows import readable

DUE, IN_BATCH = 0, 2
DELAYED = 0


def held(database: Database, queue: str, group: str, limit: int, after: str | None) -> MessagePage:
    """Delayed messages and retries by due time, then members of batches that have not started, batch by batch."""
    phase, first, kind, number = place_of(after, (DUE, 0, 0, 0))
    found: list[Found] = []
    if phase == DUE:
        found += _due(database.rows(SQL.due_messages, (queue, group, limit + 1, first, kind, number)))
    if len(found) <= limit:
        batch_id, last = (first, number) if phase == IN_BATCH else (0, 0)
        found += _waiting(database.rows(SQL.waiting_messages, (queue, limit + 1 - len(found), batch_id, last)))
    return page_of(found, limit)


def _due(rows: list[tuple[Any, ...]]) -> Iterator[Found]:
    for due_at, kind, number, created_at, message_id, attempt, reason, batch in rows:
        yield (
            (DUE, due_at, kind, number),
            MessageSummary(
                message_id,
                State.HELD,
                None if kind == DELAYED else number,
                to_time(created_at),
                attempt,
                due_at=to_time(due_at),
                reason=readable(reason),
                batch=batch,
            ),
        )


def _waiting(rows: list[tuple[Any, ...]]) -> Iterator[Found]:
    for batch_id, number, created_at, message_id, batch in rows:
        summary = MessageSummary(message_id, State.HELD, None, to_time(created_at), 0, batch=batch)
        yield (IN_BATCH, batch_id, 0, number), summary


def ready(database: Database, queue: str, group: str, limit: int, after: str | None) -> MessagePage:
    """Without messages that a receive would skip, so a page may be short although another one follows."""
    place = place_of(after, (0, 0, 0, 0))
    rows = database.rows(SQL.ready_messages, (queue, group, limit + 1, *place))
    page = page_of(_ready(rows), limit)
    passed = {row[5] for row in rows if not row[8]}
    return MessagePage([one for one in page.messages if one.id not in passed], page.next)


def _ready(rows: list[tuple[Any, ...]]) -> Iterator[Found]:
    for priority, kind, tx, position, created_at, message_id, attempt, reason, _ in rows:
        created = to_time(created_at)
        summary = MessageSummary(message_id, State.READY, position, created, attempt, reason=readable(reason))
        yield (priority, kind, tx, position), summary


def members(
    database: Database, queue: str, name: str, number: int | None, limit: int, after: str | None
) -> MessagePage:
    """Members without their states."""
    rows = database.rows(SQL.batch_members, (queue, name, number, limit + 1, *place_of(after, (0, 0))))
    return page_of(_members(rows), limit)


def _members(rows: list[tuple[Any, ...]]) -> Iterator[Found]:
    for is_held, number, created_at, message_id, queue in rows:
        position, state = (None, State.HELD) if is_held else (number, State.READY)
        yield (is_held, number), MessageSummary(message_id, state, position, to_time(created_at), queue=queue)
