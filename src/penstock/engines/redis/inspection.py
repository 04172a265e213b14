"""Inspection, and what the Redis Streams commands need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from penstock.domain import refusals
from penstock.domain.explain import Situation
from penstock.domain.lifecycle import State
from penstock.domain.message import Message
from penstock.domain.results import (
    Archived,
    AuditEntry,
    MessagePage,
    MessageState,
    RetentionPreview,
    SeekPreview,
)
from penstock.engines.contract import Receipt
from penstock.engines.pages import Found, leased_page, page_of, place_of
from penstock.engines.redis import rows
from penstock.engines.redis.connection import RedisDatabase
from penstock.engines.redis.drafts import policy_of, policy_text


class InspectionCalls:
    database: RedisDatabase

    def peek(self, queue: str, group: str, limit: int) -> list[Message]:
        return [rows.message(queue, row) for row in self.database.read("peek", queue, group=group, limit=limit)]

    def browse(self, queue: str, after: int, upto: int | None, limit: int, *, backwards: bool = False) -> list[Message]:
        found = self.database.read("browse", queue, after=after, upto=upto, limit=limit, backwards=backwards)
        return [rows.message(queue, row) for row in found]

    def live(self, queue: str, group: str, state: State, limit: int, after: str | None) -> MessagePage:
        if state is State.LEASED:
            (position,) = place_of(after, (0,))
            if not self.database.has(queue):
                raise refusals.no_queue(queue, self.database.queue_names())
            leased = self.database.read("leases", queue, group=group, after=position, limit=limit + 1)
            return leased_page([rows.lease(row) for row in leased], limit)
        found = self._ready if state is State.READY else self._held
        return page_of(found(queue, group, limit + 1, after), limit)

    def _ready(self, queue: str, group: str, limit: int, after: str | None) -> Iterator[Found]:
        place = place_of(after, (0, 0, 0))
        for priority, kind, position, row in self.database.read(
            "live_ready", queue, group=group, after=place, limit=limit
        ):
            yield (priority, kind, position), rows.summary(row, State.READY)

    def _held(self, queue: str, group: str, limit: int, after: str | None) -> Iterator[Found]:
        place = place_of(after, (0, 0, 0, 0))
        for *found, row, name in self.database.read("live_held", queue, group=group, after=place, limit=limit):
            yield tuple(found), rows.summary(row, State.HELD, rows.text(name))

    def archive(self, queue: str, group: str, outcome: State | None, limit: int, before: int | None) -> list[Archived]:
        found = self.database.read("archive", queue, group=group, outcome=outcome, limit=limit, before=before)
        return [rows.archived(queue, group, row) for row in found]

    def audit(self, queue: str, message_id: str) -> list[AuditEntry]:
        return [rows.audit_entry(row) for row in self.database.read("audit", queue, id=message_id)]

    def states(self, queue: str, group: str, ids: Sequence[str]) -> list[MessageState | None]:
        return [rows.message_state(row) for row in self.database.read("states", queue, group=group, ids=list(ids))]

    def situation(self, queue: str, message_id: str, group: str) -> Situation:
        found = self.database.read("situation", queue, id=message_id, group=group)
        now, state, reason, attempt, until_at, consumer, batch, position, *flags, lag, consumers = found
        has_group, is_stream, is_dead_letter, is_passed, is_blocked, is_paused = map(bool, flags)
        return Situation(
            now=now,
            state=State(state.decode()),
            reason=rows.text(reason),
            attempt=attempt,
            until_at=until_at,
            consumer=rows.text(consumer),
            batch=rows.text(batch),
            position=position,
            has_group=has_group,
            is_stream=is_stream,
            is_dead_letter=is_dead_letter,
            is_passed=is_passed,
            is_blocked=is_blocked,
            is_paused=is_paused,
            lag=lag,
            consumers=consumers,
        )

    def keep_traces(self, queue: str, group: str, traces: Sequence[tuple[int, str]]) -> None:
        self.database.write("keep_traces", queue, group=group, traces=list(traces))

    def error_trace(self, queue: str, message_id: str, group: str) -> str | None:
        return rows.text(self.database.read("error_trace", queue, id=message_id, group=group))

    def count(self, queue: str) -> int:
        return self._number(queue, "count")

    def unread(self, queue: str) -> int:
        return self._number(queue, "unread")

    def position_at(self, queue: str, at: int) -> int:
        return self._number(queue, "position_at", at)

    def last_position(self, queue: str) -> int:
        return self._number(queue, "last_position")

    def _number(self, queue: str, what: str, at: int | None = None) -> int:
        number: int = self.database.read("number", queue, what=what, at=at)
        return number

    def preview_seek(self, queue: str, group: str, target: int | str, is_time: bool = False) -> SeekPreview:
        found = self.database.read("preview_seek", queue, group=group, target=target, is_time=is_time)
        return SeekPreview(*found)

    def preview_retention(self, queue: str, changes: dict[str, Any]) -> RetentionPreview:
        stored = self.database.command("HGET", self.database.queue_key(queue), "policy")
        if stored is None:
            raise refusals.no_queue(queue, self.database.queue_names())
        before = policy_of(stored)
        after = msgspec.structs.replace(before, **changes)
        messages, letters = self.database.read("preview_retention", queue, policy=policy_text(after))
        trims_sooner = (
            after.history_seconds < before.history_seconds or after.group_idle_seconds < before.group_idle_seconds
        )
        purges_sooner = after.dead_letter_seconds < before.dead_letter_seconds
        return RetentionPreview(messages if trims_sooner else 0, letters if purges_sooner else 0)

    # -- streams ---------------------------------------------------------------------------------------------------

    def clear(self, queue: str) -> bool:
        return bool(self.database.write("clear", queue))

    def take_over(
        self,
        queue: str,
        group: str,
        consumer: str,
        ids: Sequence[str],
        lease_seconds: float,
        counts: bool = True,
        force: bool = False,
    ) -> Receipt:
        found = self.database.write(
            "take_over", queue, group=group, consumer=consumer, ids=list(ids), lease_seconds=lease_seconds,
            counts=counts, force=force,
        )  # fmt: skip
        return rows.receipt(found, queue, consumer)

    def reached(self, queue: str, group: str) -> int:
        position: int = self.database.read("reached", queue, group=group)
        return position

    def fitting(self, queue: str, group: str | None, limit: int, size: int) -> int:
        count: int = self.database.read("fitting", queue, group=group, limit=limit, size=size)
        return count

    def places(
        self, queue: str, after: int, upto: int | None, limit: int, *, backwards: bool = False
    ) -> list[tuple[int, int, int]]:
        found = self.database.read("places", queue, after=after, upto=upto, limit=limit, backwards=backwards)
        return [(position, created_at, size) for position, created_at, size in found]

    def settled(self, queue: str) -> int:
        """The server runs one call at a time, so positions become visible in their order."""
        return self.last_position(queue)
