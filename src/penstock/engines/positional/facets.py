"""The facets of the contract over positions: each verb is one transaction around the module that implements it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.domain.explain import Situation
from penstock.domain.lifecycle import State
from penstock.domain.message import Draft, Message
from penstock.domain.recurrence import CatchUp, Schedule
from penstock.domain.results import (
    Archived,
    AuditEntry,
    BatchInfo,
    MessagePage,
    MessageState,
    Part,
    RetentionPreview,
    SeekPreview,
)
from penstock.engines.contract import Mark, Receipt, Table
from penstock.engines.positional import (
    arrow,
    batch_lifecycle,
    batches,
    claims,
    counts,
    cursors,
    deletion,
    error_traces,
    explanation,
    inspection,
    leases,
    ledger,
    live_messages,
    previews,
    queues,
    schedules,
    sink,
    sizes,
    windows,
)
from penstock.engines.positional.database import PositionalDatabase

if TYPE_CHECKING:
    import pyarrow


class BatchFacet:
    database: PositionalDatabase

    def batch_mark(self, queue: str, name: str, opens: bool) -> int:
        with self.database.read() as transaction:
            found = queues.find(transaction, queue)
            return 0 if found is None else batches.mark(transaction, found, name, opens)

    def batch_open(
        self, queue: str, name: str, end: Draft | None, abort: Draft | None, after: int | None = None
    ) -> BatchInfo:
        with self.database.write(queue) as transaction:
            return batch_lifecycle.open_batch(transaction, queue, name, end, abort, after)

    def batch_start(self, queue: str, name: str, after: int | None = None) -> BatchInfo:
        with self.database.write(queue) as transaction:
            return batch_lifecycle.start(transaction, queue, name, after)

    def batch_cancel(self, queue: str, name: str, after: int | None = None) -> BatchInfo:
        with self.database.write(queue) as transaction:
            return batch_lifecycle.cancel(transaction, queue, name, after)

    def batch(self, queue: str, name: str, after: int | None = None) -> BatchInfo:
        with self.database.read() as transaction:
            found = queues.get(transaction, queue)
            return batches.info(transaction, found, batches.get(transaction, found, name, after))

    def batches(self, queue: str) -> list[BatchInfo]:
        with self.database.read() as transaction:
            found = queues.find(transaction, queue)
            if found is None:
                return []
            return [batches.info(transaction, found, batch) for batch in batches.every(transaction, found)]

    def cancelled(self, queue: str, group: str, positions: Sequence[int]) -> list[bool]:
        with self.database.read() as transaction:
            return batches.cancelled(transaction, queues.get(transaction, queue), group, positions)

    def members(self, queue: str, name: str, number: int | None, limit: int, after: str | None) -> MessagePage:
        with self.database.read() as transaction:
            return live_messages.members(transaction, queue, name, number, limit, after)


class ScheduleFacet:
    database: PositionalDatabase

    def schedule(self, name: str, cron: str, timezone: str, queue: str, draft: Draft, catch_up: CatchUp) -> Schedule:
        with self.database.write() as transaction:
            return schedules.put(transaction, name, cron, timezone, queue, draft, catch_up)

    def schedules(self) -> list[Schedule]:
        with self.database.read() as transaction:
            return schedules.every(transaction)

    def schedule_pause(self, name: str, paused: bool) -> Schedule:
        with self.database.write() as transaction:
            return schedules.pause(transaction, name, paused)

    def unschedule(self, name: str) -> None:
        with self.database.write() as transaction:
            schedules.remove(transaction, name)

    def schedule_run(self, name: str) -> str:
        with self.database.write() as transaction:
            return schedules.run(transaction, name)


class InspectionFacet:
    database: PositionalDatabase

    def peek(self, queue: str, group: str, limit: int) -> list[Message]:
        with self.database.read(queue) as transaction:
            return inspection.peek(transaction, queue, group, limit)

    def browse(self, queue: str, after: int, upto: int | None, limit: int, *, backwards: bool = False) -> list[Message]:
        with self.database.read(queue) as transaction:
            return inspection.browse(transaction, queue, after, upto, limit, backwards)

    def live(self, queue: str, group: str, state: State, limit: int, after: str | None) -> MessagePage:
        with self.database.read(queue) as transaction:
            return live_messages.live(transaction, queue, group, state, limit, after)

    def archive(self, queue: str, group: str, outcome: State | None, limit: int, before: int | None) -> list[Archived]:
        with self.database.read() as transaction:
            return inspection.archive(transaction, queue, group, outcome, limit, before)

    def audit(self, queue: str, message_id: str) -> list[AuditEntry]:
        with self.database.read(queue) as transaction:
            return inspection.history(transaction, queue, message_id)

    def states(self, queue: str, group: str, ids: Sequence[str]) -> list[MessageState | None]:
        with self.database.read(queue) as transaction:
            return inspection.states(transaction, queue, group, ids)

    def situation(self, queue: str, message_id: str, group: str) -> Situation:
        with self.database.read(queue) as transaction:
            return explanation.situation(transaction, queue, message_id, group)

    def keep_traces(self, queue: str, group: str, traces: Sequence[tuple[int, str]]) -> None:
        with self.database.write(queue) as transaction:
            error_traces.keep(transaction, queue, group, traces)

    def error_trace(self, queue: str, message_id: str, group: str) -> str | None:
        with self.database.read() as transaction:
            return error_traces.find(transaction, queue, message_id, group)

    def count(self, queue: str) -> int:
        with self.database.read(queue) as transaction:
            return deletion.count(transaction, queue)

    def unread(self, queue: str) -> int:
        with self.database.read(queue) as transaction:
            return counts.unread(transaction, queue)

    def position_at(self, queue: str, at: int) -> int:
        with self.database.read(queue) as transaction:
            found = queues.find(transaction, queue)
            return 0 if found is None else cursors.position_at(transaction, found.queue_id, at)

    def last_position(self, queue: str) -> int:
        with self.database.read(queue) as transaction:
            return windows.last_position(transaction, queue)

    def preview_seek(self, queue: str, group: str, target: int | str, is_time: bool = False) -> SeekPreview:
        with self.database.read(queue) as transaction:
            return previews.of_seek(transaction, queue, group, target, is_time)

    def preview_retention(self, queue: str, changes: dict[str, Any]) -> RetentionPreview:
        with self.database.read() as transaction:
            return previews.of_retention(transaction, queue, changes)


class StreamFacet:
    database: PositionalDatabase

    def clear(self, queue: str) -> bool:
        with self.database.write(queue) as transaction:
            return deletion.clear(transaction, queue)

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
        with self.database.write(queue) as transaction:
            return claims.take_over(transaction, queue, group, consumer, ids, lease_seconds, counts, force)

    def reached(self, queue: str, group: str) -> int:
        with self.database.read() as transaction:
            return leases.reached(transaction, queue, group)

    def fitting(self, queue: str, group: str | None, limit: int, size: int) -> int:
        with self.database.read(queue) as transaction:
            return sizes.fitting(transaction, queue, group, limit, size)

    def places(
        self, queue: str, after: int, upto: int | None, limit: int, *, backwards: bool = False
    ) -> list[tuple[int, int, int]]:
        with self.database.read(queue) as transaction:
            return sizes.places(transaction, queue, after, upto, limit, backwards)

    def settled(self, queue: str) -> int:
        """Positions become visible in their order, so the last one is settled."""
        with self.database.read(queue) as transaction:
            return windows.last_position(transaction, queue)


class WindowFacet:
    database: PositionalDatabase

    def epoch(self) -> str:
        with self.database.read() as transaction:
            return windows.epoch(transaction)

    def horizon(self, queue: str, table: Table = "messages") -> Mark:
        with self.database.read(queue) as transaction:
            return windows.horizon(transaction, queue, table)

    def earliest(self, queue: str, table: Table = "messages") -> Mark:
        with self.database.read() as transaction:
            return windows.earliest(transaction, queue, table)

    def mark_at(self, queue: str, at: int) -> Mark:
        with self.database.read(queue) as transaction:
            found = queues.find(transaction, queue)
            position = 0 if found is None else cursors.position_at(transaction, found.queue_id, at)
            return windows.mark_at(transaction, queue, position)

    def cut(
        self,
        queue: str,
        start: Mark,
        end: Mark,
        rows: int | None,
        size: int | None = None,
        table: Table = "messages",
    ) -> Mark:
        with self.database.read(queue) as transaction:
            return windows.cut(transaction, queue, start, end, rows, size, table)

    def window(self, queue: str, start: Mark, end: Mark, parts: int, table: Table = "messages") -> list[Part]:
        with self.database.read(queue) as transaction:
            return windows.window(transaction, queue, start, end, parts, table)

    def read(
        self, part: Part, batch_rows: int = 10_000, columns: Sequence[str] | None = None
    ) -> Iterator[pyarrow.RecordBatch]:
        return arrow.read(self.database, part, batch_rows, columns)

    def stream_position(self, queue: str, group: str) -> Mark | None:
        with self.database.read() as transaction:
            return windows.stream_position(transaction, queue, group)

    def advance(self, queue: str, group: str, mark: Mark, table: Table = "messages") -> None:
        with self.database.write(queue) as transaction:
            windows.advance(transaction, queue, group, mark, table)

    def unread_after(self, queue: str) -> dict[str, int]:
        with self.database.read(queue) as transaction:
            return counts.unread_after(transaction, queue)


class SinkFacet:
    database: PositionalDatabase

    def stage(self, queue: str, key: str, part: str, batches: Iterable[pyarrow.RecordBatch]) -> int:
        return sink.stage(self.database, queue, key, part, batches)

    def release(self, queue: str, key: str, parts: Sequence[str]) -> int | None:
        with self.database.write(queue) as transaction:
            return sink.release(transaction, queue, key, parts)

    def discard(self, queue: str, key: str) -> None:
        with self.database.write(queue) as transaction:
            sink.discard(transaction, queue, key)


class LedgerFacet:
    database: PositionalDatabase

    def ledger(self, kind: str, prefix: str = "") -> dict[str, str]:
        with self.database.read() as transaction:
            return ledger.entries(transaction, kind, prefix)

    def record(
        self,
        kind: str,
        puts: Mapping[str, str],
        removes: Sequence[str] = (),
        expect: Mapping[str, str | None] | None = None,
    ) -> bool:
        with self.database.write() as transaction:
            return ledger.record(transaction, kind, puts, removes, expect or {})
