"""The contract on PostgreSQL: every verb is a function of the schema, called in one round trip."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.domain.errors import ConsumerRemoved
from penstock.domain.explain import Situation
from penstock.domain.lifecycle import State
from penstock.domain.message import Draft, Message
from penstock.domain.policy import Policy
from penstock.domain.recurrence import CatchUp, Schedule
from penstock.domain.results import (
    AddressState,
    Archived,
    AuditEntry,
    Check,
    ConsumerInfo,
    DeadLetter,
    GroupStats,
    LeaseInfo,
    MessageState,
    Part,
    QueueInfo,
    Repair,
    SweepReport,
)
from penstock.domain.settlement import Settle, Settled
from penstock.domain.timestamps import SECOND
from penstock.engines.contract import Capabilities, Edge, Mark, Operation, Receipt, Table
from penstock.engines.flaws import Choices
from penstock.engines.postgres import (
    caller_transaction,
    doctor,
    messages,
    migration,
    record_batches,
    repair,
    rows,
    schedules,
    settlements,
    sink,
    sweep,
    windows,
)
from penstock.engines.postgres.batches import BatchVerbs
from penstock.engines.postgres.connection import Database
from penstock.engines.postgres.dumpers import Numbers
from penstock.engines.postgres.log import FIND_QUEUE, LogView
from penstock.engines.postgres.notify import Listener
from penstock.engines.postgres.suggestions import suggesting
from penstock.engines.statements import Statements

if TYPE_CHECKING:
    import pyarrow

SQL = Statements("penstock.engines.postgres", "sql/verbs.sql")
DECLARE, QUEUES = rows.with_policy(SQL.declare), rows.with_policy(SQL.queues)


class PostgresEngine(LogView, BatchVerbs):
    name = "postgres"
    capabilities = Capabilities()

    def __init__(self, database: Database, listen: bool) -> None:
        super().__init__(database)
        self.watch = Listener(database, listen)

    # -- the store -------------------------------------------------------------------------------------------------

    def migrate(self) -> list[str]:
        self.database.probe()
        return migration.migrate(self.database)

    def close(self) -> None:
        self.watch.close()
        self.database.close()

    def now(self) -> int:
        return int(self._value(SQL.now))

    def together(self, operations: Sequence[Operation]) -> list[Any]:
        _ = self.salt
        results = self.database.together(operations)
        self.watch.committed()
        return results

    def wait(self, seen: int, timeout_seconds: float) -> int:
        return self.watch.wait(seen, timeout_seconds)

    def seen(self) -> int:
        return self.watch.seen()

    def doctor(self) -> list[Check]:
        _ = self.salt
        return doctor.examine(self.database, [(info, self.stats(info.name)) for info in self.queues()])

    def repair(self, dry_run: bool, choices: Choices) -> list[Repair]:
        _ = self.salt
        return repair.repair(self.database, dry_run, choices)

    # -- queues ----------------------------------------------------------------------------------------------------

    def declare(self, queue: str, changes: dict[str, Any]) -> Policy:
        row = self._rows(DECLARE, queue, msgspec.json.encode(changes).decode())[0]
        self.watch.committed()
        return rows.policy(row)

    def policy(self, queue: str) -> Policy:
        found = self._rows(FIND_QUEUE, queue)
        return rows.policy(found[0]) if found else Policy()

    def has(self, queue: str) -> bool:
        return bool(self._rows(FIND_QUEUE, queue))

    def queues(self) -> list[QueueInfo]:
        return [rows.queue_info(row) for row in self._rows(QUEUES)]

    def flush(self, queue: str) -> int:
        return int(self._value(SQL.flush, queue))

    def clear(self, queue: str) -> bool:
        had_any = bool(self._value(SQL.clear, queue))
        self.watch.committed()
        return had_any

    def delete(self, queue: str) -> int:
        with suggesting(self.database, queue):
            count = int(self._value(SQL.delete_queue, queue))
        self.watch.committed()
        return count

    # -- messages --------------------------------------------------------------------------------------------------

    def send(self, queue: str, drafts: Sequence[Draft], transaction: object = None) -> list[str]:
        if not drafts:
            return []
        salt = self.salt
        if transaction is not None:
            return caller_transaction.send(self.database, queue, drafts, salt, transaction)
        ids = messages.send(self.database, queue, drafts, salt, self.watch.is_due(queue))
        self.watch.committed()
        return ids

    def receive(
        self,
        queue: str,
        group: str | None,
        consumer: str,
        limit: int,
        lease_seconds: float | None,
        needs_group: bool = False,
    ) -> Receipt:
        """A receive that a power cut undoes is only a redelivery, so it does not wait for the disk, when it is all that
        the transaction does; the function knows where that must not be."""
        durable = self.database.is_inside
        found = self._rows(SQL.receive, queue, group, consumer, limit, lease_seconds, durable, needs_group)
        return self._receipt(queue, consumer, found)

    def receive_each(
        self,
        queue: str,
        group: str | None,
        shares: Sequence[tuple[str, int]],
        lease_seconds: float | None,
        needs_group: bool = False,
    ) -> list[Receipt]:
        receipts: list[Receipt] = []
        is_dry = False
        for consumer, limit in shares:
            if not is_dry:
                try:
                    receipts.append(self.receive(queue, group, consumer, limit, lease_seconds, needs_group))
                    is_dry = not receipts[-1].rows
                    continue
                except ConsumerRemoved:
                    # What others have received already must reach them: this one learns it when it comes first.
                    if not receipts:
                        raise
            # When one comes back empty, so would all after it.
            receipts.append(msgspec.structs.replace(receipts[-1], consumer=consumer, rows=[]))
        return receipts

    def _receipt(self, queue: str, consumer: str, found: list[tuple[Any, ...]]) -> Receipt:
        last = found.pop()
        return Receipt(last[1], queue, last[3], consumer, self.salt, found)

    def ready_in(self, queue: str, group: str | None) -> float | None:
        microseconds = self._value(SQL.ready_in, queue, group)
        return None if microseconds is None else microseconds / SECOND

    def settle(self, queue: str, group: str, settles: Sequence[Settle]) -> list[Settled]:
        if not settles:
            return []
        _ = self.salt
        results = settlements.settle(self.database, queue, group, settles)
        self.watch.committed()
        return results

    def ack_all(self, queue: str, group: str, token: int, positions: list[int]) -> bool:
        whole: bool = self._value(SQL.ack_whole, queue, group, token, len(positions), sum(positions))
        self.watch.committed()
        return whole

    def extend(self, queue: str, group: str, leases: Sequence[tuple[int, int]], seconds: float) -> list[int | None]:
        tokens = Numbers([token for token, _ in leases])
        positions = Numbers([position for _, position in leases])
        ends: list[int | None] = self._value(SQL.extend, queue, group, tokens, positions, seconds)
        return ends

    def position(self, queue: str, message_id: str) -> int:
        with suggesting(self.database, queue):
            return int(self._value(SQL.position_of, queue, message_id))

    def leases(
        self,
        queue: str,
        group: str,
        *,
        ids: Sequence[str] | None = None,
        consumer: str | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> list[LeaseInfo]:
        wanted = None if ids is None else list(dict.fromkeys(ids))
        most = limit if wanted is None else max(1, len(wanted))
        return [rows.lease_info(row) for row in self._rows(SQL.leases, queue, group, wanted, consumer, after, most)]

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
        with suggesting(self.database, queue):
            found = self._rows(SQL.take_over, queue, group, consumer, list(ids), lease_seconds, counts, force)
        return self._receipt(queue, consumer, found)

    def remove(self, queue: str, ids: Sequence[str]) -> int:
        removed = int(self._value(SQL.remove, queue, list(ids)))
        self.watch.committed()
        return removed

    def trim(self, queue: str, *, upto: int | None = None, keep: int | None = None) -> int:
        trimmed = int(self._value(SQL.trim, queue, upto, keep))
        self.watch.committed()
        return trimmed

    # -- groups ----------------------------------------------------------------------------------------------------

    def seek(self, queue: str, group: str, target: int | str, is_time: bool = False) -> int:
        with suggesting(self.database, queue):
            position: int = self._value(SQL.seek, queue, group, str(target), is_time)
        self.watch.committed()
        return position

    def reached(self, queue: str, group: str) -> int:
        return int(self._value(SQL.reached, queue, group))

    def unread_after(self, queue: str) -> dict[str, int]:
        return dict(self._rows(SQL.unread_after, queue))

    def groups(self, queue: str) -> list[str]:
        return [name for (name,) in self._rows(SQL.groups, queue)]

    def forget(self, queue: str, group: str) -> bool:
        is_gone = bool(self._value(SQL.forget, queue, group))
        self.watch.committed()
        return is_gone

    # -- addresses -------------------------------------------------------------------------------------------------

    def address(self, queue: str, address: str) -> AddressState | None:
        found = self._rows(SQL.address, queue, address)
        if not found:
            return None
        message_id, outcome, reason, code = found[0]
        return AddressState(message_id, None if outcome is None else State(outcome), rows.readable(reason), code)

    def is_live(self, queue: str, address: str) -> bool:
        return bool(self._value(SQL.is_live, queue, address))

    def ended(self, queue: str, message_id: str) -> AddressState | None:
        with suggesting(self.database, queue):
            outcome, reason, code = self._rows(SQL.ended, queue, message_id)[0]
        return None if outcome is None else AddressState(message_id, State(outcome), rows.readable(reason), code)

    # -- consumers -------------------------------------------------------------------------------------------------

    def register(
        self,
        queue: str,
        group: str,
        name: str,
        heartbeat_seconds: float,
        max_missed_heartbeats: int = 1,
        heartbeats_per_sweep: int = 10,
    ) -> ConsumerInfo:
        settings = (heartbeat_seconds, max_missed_heartbeats, heartbeats_per_sweep)
        return rows.consumer_info(self._rows(SQL.register, queue, group, name, *settings)[0])

    def heartbeat(self, queue: str, group: str, name: str) -> ConsumerInfo:
        with suggesting(self.database, queue):
            return rows.consumer_info(self._rows(SQL.heartbeat, queue, group, name)[0])

    def deregister(self, queue: str, group: str, name: str) -> int:
        with suggesting(self.database, queue):
            count: int = self._value(SQL.deregister, queue, group, name)
        self.watch.committed()
        return count

    def consumers(self, queue: str | None = None) -> list[ConsumerInfo]:
        return [rows.consumer_info(row) for row in self._rows(SQL.consumers, queue)]

    # -- schedules -------------------------------------------------------------------------------------------------

    def schedule(self, name: str, cron: str, timezone: str, queue: str, draft: Draft, catch_up: CatchUp) -> Schedule:
        _ = self.salt
        return schedules.put(self.database, name, cron, timezone, queue, draft, catch_up)

    def schedules(self) -> list[Schedule]:
        return [rows.schedule(row) for row in self._rows(SQL.schedules)]

    def schedule_pause(self, name: str, paused: bool) -> Schedule:
        _ = self.salt
        with suggesting(self.database, name):
            return schedules.pause(self.database, name, paused)

    def schedule_run(self, name: str) -> str:
        with suggesting(self.database, name):
            message_id = str(self._value(SQL.schedule_run, name))
        self.watch.committed()
        return message_id

    def unschedule(self, name: str) -> None:
        with suggesting(self.database, name):
            self._rows(SQL.unschedule, name)

    # -- dead letters ----------------------------------------------------------------------------------------------

    def dead_letters(
        self, queue: str, group: str | None, outcome: State | None, limit: int, before: Edge | None
    ) -> list[DeadLetter]:
        edge = before or (None, None, None)
        found = self._rows(SQL.dead_letters, queue, group, outcome, limit, *edge)
        if not found and group is not None:
            self._check_group(queue, group)
        return [rows.dead_letter(row, queue) for row in found]

    def _check_group(self, queue: str, group: str) -> None:
        """A group that the queue does not have is a mistake, but for the one that receives by default."""
        groups = self.groups(queue)
        if groups and group not in groups and group != self.policy(queue).default_group:
            with suggesting(self.database, queue, group):
                self._rows(SQL.redrive, queue, [], group, None, 0)

    def redrive(self, queue: str, group: str, ids: Sequence[str] | None, outcome: State | None, limit: int) -> int:
        with suggesting(self.database, queue, group):
            count: int = self._value(SQL.redrive, queue, None if ids is None else list(ids), group, outcome, limit)
        self.watch.committed()
        return count

    def purge(self, queue: str, group: str, ids: Sequence[str] | None, outcome: State | None, limit: int) -> int:
        with suggesting(self.database, queue, group):
            return int(self._value(SQL.purge, queue, None if ids is None else list(ids), group, outcome, limit))

    # -- looking ---------------------------------------------------------------------------------------------------

    def peek(self, queue: str, group: str, limit: int) -> list[Message]:
        return [rows.message(row, queue) for row in self._rows(SQL.next_messages, queue, group, limit)]

    def find(self, queue: str, message_id: str) -> Message:
        with suggesting(self.database, queue):
            return rows.message(self._rows(SQL.find, queue, message_id)[0], queue)

    def stats(self, queue: str) -> dict[str, GroupStats]:
        return {row[0]: rows.group_stats(row) for row in self._rows(SQL.stats, queue)}

    def audit(self, queue: str, message_id: str) -> list[AuditEntry]:
        with suggesting(self.database, queue):
            return [rows.audit_entry(row) for row in self._rows(SQL.audit, queue, message_id)]

    def states(self, queue: str, group: str, ids: Sequence[str]) -> list[MessageState | None]:
        with suggesting(self.database, queue):
            return [rows.message_state(row) for row in self._rows(SQL.states, queue, group, list(ids))]

    def archive(self, queue: str, group: str, outcome: State | None, limit: int, before: int | None) -> list[Archived]:
        found = self._rows(SQL.ended_messages, queue, group, outcome, limit, before)
        return [rows.archived(row, queue, group) for row in found]

    def situation(self, queue: str, message_id: str, group: str) -> Situation:
        with suggesting(self.database, queue):
            return msgspec.convert(self._value(SQL.situation, queue, message_id, group), Situation)

    # -- maintenance -----------------------------------------------------------------------------------------------

    def sweep(self) -> SweepReport:
        _ = self.salt
        report = sweep.sweep(self.database)
        if any(msgspec.structs.astuple(report)):
            self.watch.committed()
        return report

    def claim_sweep(self, every_seconds: float) -> bool:
        return bool(self._value(SQL.claim_sweep, every_seconds))

    # -- windows ---------------------------------------------------------------------------------------------------

    def epoch(self) -> str:
        return f"{self._value(SQL.epoch):016x}"

    def horizon(self, queue: str, table: Table = "messages") -> Mark:
        _ = self.salt
        return windows.horizon(self.database, queue, table)

    def earliest(self, queue: str, table: Table = "messages") -> Mark:
        _ = self.salt
        return windows.earliest(self.database, queue, table)

    def mark_at(self, queue: str, at: int) -> Mark:
        _ = self.salt
        return windows.mark_at(self.database, queue, at)

    def cut(
        self,
        queue: str,
        start: Mark,
        end: Mark,
        rows: int | None,
        size: int | None = None,
        table: Table = "messages",
    ) -> Mark:
        _ = self.salt
        return windows.cut(self.database, queue, start, end, rows, size, table)

    def window(self, queue: str, start: Mark, end: Mark, parts: int, table: Table = "messages") -> list[Part]:
        _ = self.salt
        with suggesting(self.database, queue):
            return windows.window(self.database, queue, start, end, parts, table)

    def read(
        self, part: Part, batch_rows: int = 10_000, columns: Sequence[str] | None = None
    ) -> Iterator[pyarrow.RecordBatch]:
        return record_batches.read(self.database, part, batch_rows, columns, self.salt)

    def stream_position(self, queue: str, group: str) -> Mark | None:
        _ = self.salt
        return windows.stream_position(self.database, queue, group)

    def advance(self, queue: str, group: str, mark: Mark, table: Table = "messages") -> None:
        _ = self.salt
        windows.advance(self.database, queue, group, mark, table)

    # -- staging -----------------------------------------------------------------------------------------------------

    def stage(self, queue: str, key: str, part: str, batches: Iterable[pyarrow.RecordBatch]) -> int:
        _ = self.salt
        return sink.stage(self.database, queue, key, part, batches)

    def release(self, queue: str, key: str, parts: Sequence[str]) -> int | None:
        _ = self.salt
        count = sink.release(self.database, queue, key, parts)
        self.watch.committed()
        return count

    def discard(self, queue: str, key: str) -> None:
        _ = self.salt
        sink.discard(self.database, queue, key)

    # -- the ledger --------------------------------------------------------------------------------------------------

    def ledger(self, kind: str, prefix: str = "") -> dict[str, str]:
        return dict(self._rows(SQL.ledger, kind, prefix))

    def record(
        self,
        kind: str,
        puts: Mapping[str, str],
        removes: Sequence[str] = (),
        expect: Mapping[str, str | None] | None = None,
    ) -> bool:
        given = [msgspec.json.encode(dict(one)).decode() for one in (puts, expect or {})]
        return bool(self._value(SQL.record_facts, kind, given[0], list(removes), given[1]))
