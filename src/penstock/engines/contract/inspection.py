"""Inspection: reading messages, states, audit and counts without changing them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

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


class InspectionContract(Protocol):
    """What dashboards, command line and operators read."""

    def peek(self, queue: str, group: str, limit: int) -> list[Message]:
        """What the group would receive next, in that order, without receiving it."""

    def browse(self, queue: str, after: int, upto: int | None, limit: int, *, backwards: bool = False) -> list[Message]:
        """Messages of the log with after < position <= upto, whatever their state, in order or backwards."""

    def live(self, queue: str, group: str, state: State, limit: int, after: str | None) -> MessagePage:
        """Messages that are held, ready or leased in the group, without payloads: held ones by due time, ready ones in
        receive order, leased ones by position. `after` is `next` of the previous page."""

    def archive(self, queue: str, group: str, outcome: State | None, limit: int, before: int | None) -> list[Archived]:
        """Messages that have ended in the group, latest position first; `before` is a position for paging."""

    def audit(self, queue: str, message_id: str) -> list[AuditEntry]:
        """The audit entries of one message over all groups, in order."""

    def states(self, queue: str, group: str, ids: Sequence[str]) -> list[MessageState | None]:
        """The state of each message in the group, from its last audit entry, in the order of the ids; None for an
        unknown message or one past retention."""

    def situation(self, queue: str, message_id: str, group: str) -> Situation:
        """The facts about a message in a group from which `domain.explain` says why it is not running."""

    def keep_traces(self, queue: str, group: str, traces: Sequence[tuple[int, str]]) -> None:
        """Store the stack trace of the last error of messages, by position, that wait for a retry or are dead letters
        in the group. A later trace replaces it; it is deleted with the retry or the dead letter."""

    def error_trace(self, queue: str, message_id: str, group: str) -> str | None:
        """The stack trace of the last error of a message, if one was stored."""

    def count(self, queue: str) -> int:
        """How many messages the queue holds, whatever their state: those that a flush would remove."""

    def unread(self, queue: str) -> int:
        """How many messages a new group could receive."""

    def position_at(self, queue: str, at: int) -> int:
        """The last position sent before a time, for browsing and seeking."""

    def last_position(self, queue: str) -> int:
        """The last position given out, whether its message still exists or not."""

    def preview_seek(self, queue: str, group: str, target: int | str, is_time: bool = False) -> SeekPreview:
        """What that seek would do to messages, without doing it."""

    def preview_retention(self, queue: str, changes: dict[str, Any]) -> RetentionPreview:
        """Count the messages and dead letters that would be removed earlier under these policy fields, at a cost that
        does not grow with the backlog; zero for longer retentions."""
