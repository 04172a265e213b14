"""Windows: how Spark reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from penstock.domain.results import Part

if TYPE_CHECKING:
    import pyarrow

# A place between two rows of a table. It is opaque outside the engine that made it (SQLite: a position; PostgreSQL:
# snapshots, because its sequences commit out of order) and survives JSON unchanged. It names the row before it, so that
# a store restored from a copy can refuse marks of a log that is not its own.
Mark = int | str
# The tables that can be read by window: the log; the audit, one row per message and entry; the messages that have
# ended, one row per message and group, in the order of ending (`audit` and `archive` share their marks); dead letters
# as they are now, whatever the marks.
Table = Literal["messages", "audit", "archive", "dead_letters"]


class WindowContract(Protocol):
    """A table is read from mark to mark. The rows between two marks that are not beyond the horizon never change."""

    def epoch(self) -> str:
        """Identifies the log: unchanged for as long as marks mean the same, and unique to this store."""

    def horizon(self, queue: str, table: Table = "messages") -> Mark:
        """The mark up to which every committed row is readable: nothing can appear before it later."""

    def earliest(self, queue: str, table: Table = "messages") -> Mark:
        """The mark from which the table is complete; rows before it may be past retention."""

    def mark_at(self, queue: str, at: int) -> Mark:
        """The mark after the last message sent before a time."""

    def cut(
        self,
        queue: str,
        start: Mark,
        end: Mark,
        rows: int | None,
        size: int | None = None,
        table: Table = "messages",
    ) -> Mark:
        """The farthest mark, not beyond `end`, with at most `rows` rows and `size` payload bytes between it and
        `start`, but at least one row if there is one. An entry that covers several messages is not split, and has no
        size."""

    def window(self, queue: str, start: Mark, end: Mark, parts: int, table: Table = "messages") -> list[Part]:
        """The rows between two marks as at most `parts` parts of similar size. RangeTrimmed when some of them are past
        retention, LogDiverged when the store lacks the row before one of the marks and never trimmed it. The same
        window always holds the same rows, except removed ones; planning it need not count many rows."""

    def read(
        self, part: Part, batch_rows: int = 10_000, columns: Sequence[str] | None = None
    ) -> Iterator[pyarrow.RecordBatch]:
        """The rows of a part as Arrow record batches with the columns of its table (`tables.schema`), or with the given
        ones; the same rows in the same order each time. RangeTrimmed when some were removed meanwhile."""

    def stream_position(self, queue: str, group: str) -> Mark | None:
        """The cursor of a stream group; None when it has not begun."""

    def advance(self, queue: str, group: str, mark: Mark, table: Table = "messages") -> None:
        """Move a stream group's cursor forward, never back. Refuses a group that has leases or streams another table,
        and a mark of another log (LogDiverged). Until its retention ends nothing is trimmed that an active stream group
        has not passed: messages, or with `audit` or `archive` messages with entries after the mark."""

    def unread_after(self, queue: str) -> dict[str, int]:
        """For each group that receives, the position after which its unread messages lie: every message up to it was
        delivered to the group, has ended, or was skipped by a seek."""
