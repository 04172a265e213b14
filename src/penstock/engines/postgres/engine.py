"""The contract on PostgreSQL: every verb is a function of the schema, called in one round trip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.domain.lifecycle import State
from penstock.domain.message import Draft
from penstock.domain.policy import Policy
from penstock.domain.results import (
    AddressState,
    Check,
    ConsumerInfo,
    DeadLetter,
    GroupStats,
    Part,
    QueueInfo,
    Repair,
    SweepReport,
)
from penstock.engines.contract import Capabilities, Edge, Operation
from penstock.engines.flaws import Choices
from penstock.engines.postgres import (
    caller_transaction,
    doctor,
    messages,
    migration,
    prepared_write,
    record_batches,
    repair,
    rows,
)
from penstock.engines.postgres.batches import PostgresBatches
from penstock.engines.postgres.calls import SQL
from penstock.engines.postgres.connection import Database
from penstock.engines.postgres.inspection import FIND_QUEUE, PostgresInspection
from penstock.engines.postgres.notify import Listener
from penstock.engines.postgres.schedules import PostgresSchedules
from penstock.engines.postgres.sink import PostgresSink
from penstock.engines.postgres.streams import PostgresStreams
from penstock.engines.postgres.windows import PostgresWindows

if TYPE_CHECKING:
    import pyarrow

DECLARE, QUEUES = rows.with_policy(SQL.declare), rows.with_policy(SQL.queues)


class PostgresEngine(
    PostgresStreams, PostgresInspection, PostgresBatches, PostgresSchedules, PostgresWindows, PostgresSink
):
    name = "postgres"
    capabilities = Capabilities()

    def __init__(self, database: Database, listen: bool) -> None:
        super().__init__(database, Listener(database, listen))

    # -- the store -------------------------------------------------------------------------------------------------

    def migrate(self) -> list[str]:
        self.database.probe()
        return migration.migrate(self.database)

    def close(self) -> None:
        self.watch.close()
        self.database.close()

    def now(self) -> int:
        return int(self._value(SQL.now_us))

    def together(self, operations: Sequence[Operation]) -> list[Any]:
        _ = self.salt
        results = self.database.together(operations)
        self.watch.committed()
        return results

    def end_interrupted(self) -> None:
        """Nothing: calls have connections of their own, and an interrupted one takes its connection with it."""

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

    def delete(self, queue: str) -> int:
        with self._suggesting(queue):
            return int(self._changed(SQL.delete_queue, queue))

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

    def remove(self, queue: str, ids: Sequence[str]) -> int:
        return int(self._changed(SQL.remove, queue, list(ids)))

    def trim(self, queue: str, *, upto: int | None = None, keep: int | None = None) -> int:
        return int(self._changed(SQL.trim, queue, upto, keep))

    # -- groups ----------------------------------------------------------------------------------------------------

    def seek(self, queue: str, group: str, target: int | str, is_time: bool = False) -> int:
        with self._suggesting(queue):
            return int(self._changed(SQL.seek, queue, group, str(target), is_time))

    def groups(self, queue: str) -> list[str]:
        return [name for (name,) in self._rows(SQL.groups, queue)]

    def forget(self, queue: str, group: str) -> bool:
        return bool(self._changed(SQL.forget, queue, group))

    def stats(self, queue: str) -> dict[str, GroupStats]:
        return {row[0]: rows.group_stats(row) for row in self._rows(SQL.stats, queue)}

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
        with self._suggesting(queue):
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
        with self._suggesting(queue):
            return rows.consumer_info(self._rows(SQL.heartbeat, queue, group, name)[0])

    def deregister(self, queue: str, group: str, name: str) -> int:
        with self._suggesting(queue):
            return int(self._changed(SQL.deregister, queue, group, name))

    def consumers(self, queue: str | None = None) -> list[ConsumerInfo]:
        return [rows.consumer_info(row) for row in self._rows(SQL.consumers, queue)]

    # -- dead letters ----------------------------------------------------------------------------------------------

    def dead_letters(
        self, queue: str, group: str | None, outcome: State | None, limit: int, before: Edge | None
    ) -> list[DeadLetter]:
        edge = before or (None, None, None)
        found = self._rows(SQL.list_dead_letters, queue, group, outcome, limit, *edge)
        if not found and group is not None:
            self._check_group(queue, group)
        return [rows.dead_letter(row, queue) for row in found]

    def _check_group(self, queue: str, group: str) -> None:
        """Refuse a group that the queue does not have, except the default one, which the first receive creates."""
        groups = self.groups(queue)
        if groups and group not in groups and group != self.policy(queue).default_group:
            with self._suggesting(queue, group):
                self._rows(SQL.redrive, queue, [], group, None, 1)

    def redrive(self, queue: str, group: str, ids: Sequence[str] | None, outcome: State | None, limit: int) -> int:
        with self._suggesting(queue, group):
            return int(self._changed(SQL.redrive, queue, None if ids is None else list(ids), group, outcome, limit))

    def purge(self, queue: str, group: str, ids: Sequence[str] | None, outcome: State | None, limit: int) -> int:
        with self._suggesting(queue, group):
            return int(self._value(SQL.purge, queue, None if ids is None else list(ids), group, outcome, limit))

    # -- maintenance -----------------------------------------------------------------------------------------------

    def sweep(self) -> SweepReport:
        """Queue by queue, each in transactions of its own, so that nobody waits long and progress is kept."""
        counts = {"promoted": 0, "reclaimed": 0, "expired": 0, "trimmed": 0, "purged": 0}
        removed: int = self._value(SQL.sweep_consumers)
        fired = self._fire_schedules()
        decided: int = self._value(SQL.decide)
        for (name,) in self._rows(SQL.queue_names):
            [(*numbers, deleted)] = self._rows(SQL.sweep_queue, name, decided)
            for count, number in zip(counts, numbers, strict=True):
                counts[count] += number
            while deleted:
                deleted = self._value(SQL.delete_trimmed, name)
        prepared_write.finish(self.database)
        if removed or fired or any(counts.values()):
            self.watch.committed()
        return SweepReport(fired=fired, removed_consumers=removed, **counts)

    def claim_sweep(self, every_seconds: float) -> bool:
        return bool(self._value(SQL.claim_sweep, every_seconds))

    def read(
        self, part: Part, batch_rows: int = 10_000, columns: Sequence[str] | None = None
    ) -> Iterator[pyarrow.RecordBatch]:
        return record_batches.read(self.database, part, batch_rows, columns, self.salt)

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
