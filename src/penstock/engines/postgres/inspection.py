"""Inspection: messages by position and by state, their audit trails, and previews of administrative changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.domain.explain import Situation
from penstock.domain.lifecycle import State
from penstock.domain.message import Message
from penstock.domain.results import Archived, AuditEntry, MessagePage, MessageState, RetentionPreview, SeekPreview
from penstock.engines.pages import leased_page, members_with_states, place_of
from penstock.engines.postgres import live_messages, rows
from penstock.engines.postgres.calls import SQL, Caller
from penstock.engines.postgres.dumpers import Numbers

FIND_QUEUE = rows.with_policy(SQL.find_queue)


class PostgresInspection(Caller):
    def peek(self, queue: str, group: str, limit: int) -> list[Message]:
        return [rows.message(row, queue) for row in self._rows(SQL.next_messages, queue, group, limit)]

    def find(self, queue: str, message_id: str) -> Message:
        with self._suggesting(queue):
            return rows.message(self._rows(SQL.find, queue, message_id)[0], queue)

    def browse(self, queue: str, after: int, upto: int | None, limit: int, *, backwards: bool = False) -> list[Message]:
        found = self._rows(SQL.browse, queue, after, upto, limit, backwards)
        return [rows.message(row, queue) for row in found]

    def live(self, queue: str, group: str, state: State, limit: int, after: str | None) -> MessagePage:
        _ = self.salt
        with self._suggesting(queue):
            if state is State.HELD:
                return live_messages.held(self.database, queue, group, limit, after)
            if state is State.READY:
                return live_messages.ready(self.database, queue, group, limit, after)
            (position,) = place_of(after, (0,))
            leases = self._rows(SQL.leases, queue, group, None, None, position, limit + 1)
            if not leases and not self._rows(FIND_QUEUE, queue):
                self._rows(SQL.waiting_messages, queue, 1, 0, 0)  # which refuses the name
        return leased_page(map(rows.lease_info, leases), limit)

    def members(self, queue: str, name: str, number: int | None, limit: int, after: str | None) -> MessagePage:
        _ = self.salt
        with self._suggesting(queue, name):
            page = live_messages.members(self.database, queue, name, number, limit, after)
            return members_with_states(page, self._primary_states)

    def _primary_states(self, queue: str, ids: list[str]) -> list[MessageState | None]:
        group = rows.policy(self._rows(FIND_QUEUE, queue)[0]).default_group
        return [rows.message_state(row) for row in self._rows(SQL.states, queue, group, ids)]

    def states(self, queue: str, group: str, ids: Sequence[str]) -> list[MessageState | None]:
        with self._suggesting(queue):
            return [rows.message_state(row) for row in self._rows(SQL.states, queue, group, list(ids))]

    def audit(self, queue: str, message_id: str) -> list[AuditEntry]:
        with self._suggesting(queue):
            return [rows.audit_entry(row) for row in self._rows(SQL.list_audit, queue, message_id)]

    def archive(self, queue: str, group: str, outcome: State | None, limit: int, before: int | None) -> list[Archived]:
        found = self._rows(SQL.ended_messages, queue, group, outcome, limit, before)
        return [rows.archived(row, queue, group) for row in found]

    def situation(self, queue: str, message_id: str, group: str) -> Situation:
        with self._suggesting(queue):
            return msgspec.convert(self._value(SQL.situation, queue, message_id, group), Situation)

    def position_at(self, queue: str, at: int) -> int:
        return int(self._value(SQL.position_at, at))

    def last_position(self, queue: str) -> int:
        return int(self._value(SQL.last_position))

    def preview_seek(self, queue: str, group: str, target: int | str, is_time: bool = False) -> SeekPreview:
        with self._suggesting(queue):
            return SeekPreview(*self._rows(SQL.preview_seek, queue, group, str(target), is_time)[0])

    def preview_retention(self, queue: str, changes: dict[str, Any]) -> RetentionPreview:
        with self._suggesting(queue):
            encoded = msgspec.json.encode(changes).decode()
            return RetentionPreview(*self._rows(SQL.preview_retention, queue, encoded)[0])

    def keep_traces(self, queue: str, group: str, traces: Sequence[tuple[int, str]]) -> None:
        positions = Numbers([position for position, _ in traces])
        with self._suggesting(queue, group):
            self._rows(SQL.keep_traces, queue, group, positions, [rows.storable(trace) for _, trace in traces])

    def error_trace(self, queue: str, message_id: str, group: str) -> str | None:
        with self._suggesting(queue):
            return rows.readable(self._value(SQL.error_trace, queue, message_id, group))

    def count(self, queue: str) -> int:
        return int(self._value(SQL.message_count, queue))

    def unread(self, queue: str) -> int:
        return self._value(SQL.unread, queue) or 0
