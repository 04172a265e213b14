"""The contract on SQLite: every verb is one transaction around the module that knows how."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.domain.errors import InvalidInput, PenstockError, StoreError
from penstock.domain.lifecycle import State
from penstock.domain.message import Draft, Message
from penstock.domain.observations import (
    AddressState,
    Archived,
    AuditEntry,
    BatchInfo,
    Check,
    ConsumerInfo,
    DeadLetter,
    Explanation,
    GroupStats,
    LeaseInfo,
    MessageState,
    Part,
    QueueInfo,
    Repair,
    SweepReport,
)
from penstock.domain.policy import Policy
from penstock.domain.recurrence import CatchUp, Schedule
from penstock.domain.settlement import Settle, Settled
from penstock.engines.contract import Capabilities, Edge, Mark, Operation, Receipt, Table
from penstock.engines.flaws import Choices
from penstock.engines.sqlite import (
    batches,
    batching,
    consumers,
    counting,
    dead_letters,
    doctoring,
    explaining,
    flaws,
    leasing,
    ledger,
    looking,
    migration,
    queues,
    reading,
    receiving,
    removing,
    scheduling,
    seeking,
    sending,
    settling,
    staging,
    sweeping,
    windows,
)
from penstock.engines.sqlite.connection import Database
from penstock.engines.sqlite.log import LogView
from penstock.engines.sqlite.outside import check_connection, take_write_lock, without_habits
from penstock.engines.sqlite.receiving import Opening
from penstock.engines.sqlite.rounds import Rounds
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.sqlite.watching import FileWatch

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")


class SqliteEngine(LogView):
    name = "sqlite"
    capabilities = Capabilities(
        transactional_send=True, crosses_processes=True, makes_own_schema=True, receives_lightly=False
    )

    def __init__(self, database: Database) -> None:
        self.database = database
        self.watch = FileWatch(database)
        self._rounds = Rounds()
        database.on_commit = self.watch.committed

    # -- the store -------------------------------------------------------------------------------------------------

    def migrate(self) -> list[str]:
        return migration.migrate(self.database)

    def close(self) -> None:
        self.watch.close()
        self.database.close()

    def now(self) -> int:
        return self.database.clock()

    def together(self, operations: Sequence[Operation]) -> list[Any]:
        results: list[Any] = []
        with self.database.write():
            for operation in operations:
                try:
                    results.append(operation())
                except StoreError:
                    raise  # the database may have ended the transaction: nothing of it counts
                except PenstockError as error:
                    results.append(error)
        return results

    def wait(self, seen: int, timeout_seconds: float) -> int:
        return self.watch.wait(seen, timeout_seconds)

    def seen(self) -> int:
        return self.watch.seen()

    def doctor(self) -> list[Check]:
        return doctoring.examine(self.database)

    def repair(self, dry_run: bool, choices: Choices) -> list[Repair]:
        return flaws.repair(self.database, dry_run, choices)

    # -- queues ----------------------------------------------------------------------------------------------------

    def declare(self, queue: str, changes: dict[str, Any]) -> Policy:
        with self.database.write() as transaction:
            return queues.declare(transaction, queue, changes)

    def policy(self, queue: str) -> Policy:
        with self.database.read() as transaction:
            found = queues.find(transaction, queue)
            return Policy() if found is None else found.policy

    def has(self, queue: str) -> bool:
        with self.database.read() as transaction:
            return queues.find(transaction, queue) is not None

    def queues(self) -> list[QueueInfo]:
        with self.database.read() as transaction:
            return [queues.info(transaction, queue) for queue in queues.every(transaction)]

    def flush(self, queue: str) -> int:
        with self.database.write() as transaction:
            return queues.flush(transaction, queue)

    # -- messages --------------------------------------------------------------------------------------------------

    def send(self, queue: str, drafts: Sequence[Draft], transaction: object = None) -> list[str]:
        if not drafts:
            return []
        if transaction is not None:
            return self._send_with(queue, drafts, transaction)
        with self.database.write() as own:
            return sending.send(own, queue, drafts)

    def _send_with(self, queue: str, drafts: Sequence[Draft], transaction: object) -> list[str]:
        """On the caller's connection, as one step of the caller's transaction: whole or not at all."""
        connection = check_connection(transaction, self.database)
        with self.database.translated(), without_habits(connection):
            with connection:
                take_write_lock(connection)
                ids = sending.send(self.database.transaction(connection.cursor()), queue, drafts)
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
        """A receive that a power cut undoes is only a redelivery, so it does not wait for the disk; an at_most_once
        message must never be handed out again, so there it does."""
        receive = partial(receiving.receive, consumer=consumer, limit=limit, lease_seconds=lease_seconds)
        return self._receive(queue, group, needs_group, receive)

    def receive_each(
        self,
        queue: str,
        group: str | None,
        shares: Sequence[tuple[str, int]],
        lease_seconds: float | None,
        needs_group: bool = False,
    ) -> list[Receipt]:
        receive = partial(receiving.receive_each, shares=shares, lease_seconds=lease_seconds)
        return self._receive(queue, group, needs_group, receive)

    def _receive(
        self, queue: str, group: str | None, needs_group: bool, receive: Callable[[Transaction, Opening], T]
    ) -> T:
        durable = False
        while True:
            with self.database.write(durable) as transaction:
                opening = receiving.begin(transaction, queue, group, needs_group)
                if durable or not opening.queue.policy.at_most_once:
                    return receive(transaction, opening)
            durable = True

    def ready_in(self, queue: str, group: str | None) -> float | None:
        with self.database.read() as transaction:
            return looking.ready_in(transaction, queue, group)

    def settle(self, queue: str, group: str, settles: Sequence[Settle]) -> list[Settled]:
        with self.database.write() as transaction:
            return settling.settle(transaction, queue, group, settles)

    def ack_all(self, queue: str, group: str, token: int, positions: list[int]) -> bool:
        with self.database.write() as transaction:
            return settling.ack_all(transaction, queue, group, token, positions)

    def extend(self, queue: str, group: str, leases: Sequence[tuple[int, int]], seconds: float) -> list[int | None]:
        with self.database.write() as transaction:
            return settling.extend(transaction, queue, group, leases, seconds)

    def position(self, queue: str, message_id: str) -> int:
        with self.database.read() as transaction:
            place = looking.place(transaction, queues.get(transaction, queue), message_id)
        if place.position is None:
            raise InvalidInput(f"message {message_id} is held: it has not been handed out, so it has no lease")
        return place.position

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
        with self.database.read() as transaction:
            if ids is not None:
                return leasing.of_messages(transaction, queue, group, ids)
            return leasing.every(transaction, queue, group, consumer, after, limit)

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
        with self.database.write() as transaction:
            return leasing.take_over(transaction, queue, group, consumer, ids, lease_seconds, counts, force)

    def remove(self, queue: str, ids: Sequence[str]) -> int:
        with self.database.write() as transaction:
            return removing.remove(transaction, queue, ids)

    def trim(self, queue: str, *, upto: int | None = None, keep: int | None = None) -> int:
        """In pieces, because others wait for the write lock meanwhile."""
        removed, has_more = 0, True
        while has_more:
            with self.database.write() as transaction:
                count, has_more = removing.trim(transaction, queue, upto, keep)
            removed += count
        return removed

    # -- groups ----------------------------------------------------------------------------------------------------

    def seek(self, queue: str, group: str, target: int | str, is_time: bool = False) -> int:
        with self.database.write() as transaction:
            return seeking.seek(transaction, queue, group, target, is_time)

    def reached(self, queue: str, group: str) -> int:
        with self.database.read() as transaction:
            return leasing.reached(transaction, queue, group)

    def groups(self, queue: str) -> list[str]:
        with self.database.read() as transaction:
            found = queues.find(transaction, queue)
            return [] if found is None else [group.name for group in queues.groups(transaction, found)]

    def forget(self, queue: str, group: str) -> bool:
        with self.database.write() as transaction:
            return queues.forget(transaction, queue, group)

    # -- addresses -------------------------------------------------------------------------------------------------

    def address(self, queue: str, address: str) -> AddressState | None:
        with self.database.read() as transaction:
            return looking.address(transaction, queue, address)

    def ended(self, queue: str, message_id: str) -> AddressState | None:
        with self.database.read() as transaction:
            return looking.ended(transaction, queue, message_id)

    # -- batches ---------------------------------------------------------------------------------------------------

    def batch_mark(self, queue: str, name: str, opens: bool) -> int:
        with self.database.read() as transaction:
            found = queues.find(transaction, queue)
            return 0 if found is None else batches.mark(transaction, found, name, opens)

    def batch_open(
        self, queue: str, name: str, end: Draft | None, abort: Draft | None, after: int | None = None
    ) -> BatchInfo:
        with self.database.write() as transaction:
            return batching.open_batch(transaction, queue, name, end, abort, after)

    def batch_start(self, queue: str, name: str, after: int | None = None) -> BatchInfo:
        with self.database.write() as transaction:
            return batching.start(transaction, queue, name, after)

    def batch_cancel(self, queue: str, name: str, after: int | None = None) -> BatchInfo:
        with self.database.write() as transaction:
            return batching.cancel(transaction, queue, name, after)

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

    # -- consumers -------------------------------------------------------------------------------------------------

    def register(self, queue: str, group: str, name: str, heartbeat_seconds: float) -> ConsumerInfo:
        with self.database.write() as transaction:
            return consumers.register(transaction, queue, group, name, heartbeat_seconds)

    def heartbeat(self, queue: str, group: str, name: str) -> ConsumerInfo:
        with self.database.write() as transaction:
            return consumers.heartbeat(transaction, queue, group, name)

    def deregister(self, queue: str, group: str, name: str) -> int:
        with self.database.write() as transaction:
            return consumers.deregister(transaction, queue, group, name)

    def consumers(self, queue: str | None = None) -> list[ConsumerInfo]:
        with self.database.read() as transaction:
            return consumers.every(transaction, queue)

    # -- schedules -------------------------------------------------------------------------------------------------

    def schedule(self, name: str, cron: str, timezone: str, queue: str, draft: Draft, catch_up: CatchUp) -> Schedule:
        with self.database.write() as transaction:
            return scheduling.put(transaction, name, cron, timezone, queue, draft, catch_up)

    def schedules(self) -> list[Schedule]:
        with self.database.read() as transaction:
            return scheduling.every(transaction)

    def schedule_pause(self, name: str, paused: bool) -> Schedule:
        with self.database.write() as transaction:
            return scheduling.pause(transaction, name, paused)

    def unschedule(self, name: str) -> None:
        with self.database.write() as transaction:
            scheduling.remove(transaction, name)

    # -- dead letters ----------------------------------------------------------------------------------------------

    def dead_letters(
        self, queue: str, group: str | None, outcome: State | None, limit: int, before: Edge | None
    ) -> list[DeadLetter]:
        with self.database.read() as transaction:
            return dead_letters.every(transaction, queue, group, outcome, limit, before)

    def redrive(self, queue: str, group: str, ids: Sequence[str] | None, outcome: State | None, limit: int) -> int:
        with self.database.write() as transaction:
            return dead_letters.redrive(transaction, queue, group, ids, outcome, limit)

    def purge(self, queue: str, group: str, ids: Sequence[str] | None, outcome: State | None, limit: int) -> int:
        with self.database.write() as transaction:
            return dead_letters.purge(transaction, queue, group, ids, outcome, limit)

    # -- looking ---------------------------------------------------------------------------------------------------

    def peek(self, queue: str, group: str, limit: int) -> list[Message]:
        with self.database.read() as transaction:
            return looking.peek(transaction, queue, group, limit)

    def find(self, queue: str, message_id: str) -> Message:
        with self.database.read() as transaction:
            return looking.find(transaction, queue, message_id)

    def stats(self, queue: str) -> dict[str, GroupStats]:
        with self.database.read() as transaction:
            return counting.stats(transaction, queue)

    def audit(self, queue: str, message_id: str) -> list[AuditEntry]:
        with self.database.read() as transaction:
            return looking.audit(transaction, queue, message_id)

    def states(self, queue: str, group: str, ids: Sequence[str]) -> list[MessageState | None]:
        with self.database.read() as transaction:
            return looking.states(transaction, queue, group, ids)

    def archive(self, queue: str, group: str, outcome: State | None, limit: int, before: int | None) -> list[Archived]:
        with self.database.read() as transaction:
            return looking.archive(transaction, queue, group, outcome, limit, before)

    def explain(self, queue: str, message_id: str, group: str) -> Explanation:
        with self.database.read() as transaction:
            return explaining.explain(transaction, queue, message_id, group)

    # -- maintenance -----------------------------------------------------------------------------------------------

    def sweep(self) -> SweepReport:
        return sweeping.sweep(self.database, self._rounds)

    def claim_sweep(self, every_seconds: float) -> bool:
        return sweeping.claim(self.database, self.watch, every_seconds)

    # -- windows ---------------------------------------------------------------------------------------------------

    def epoch(self) -> str:
        with self.database.read() as transaction:
            return windows.epoch(transaction)

    def horizon(self, queue: str, table: Table = "messages") -> Mark:
        with self.database.read() as transaction:
            return windows.horizon(transaction, queue, table)

    def earliest(self, queue: str, table: Table = "messages") -> Mark:
        with self.database.read() as transaction:
            return windows.earliest(transaction, queue, table)

    def mark_at(self, queue: str, at: int) -> Mark:
        with self.database.read() as transaction:
            return windows.mark_at(transaction, queue, seeking.position_at(transaction, at))

    def cut(
        self,
        queue: str,
        start: Mark,
        end: Mark,
        rows: int | None,
        size: int | None = None,
        table: Table = "messages",
    ) -> Mark:
        with self.database.read() as transaction:
            return windows.cut(transaction, queue, start, end, rows, size, table)

    def window(self, queue: str, start: Mark, end: Mark, parts: int, table: Table = "messages") -> list[Part]:
        with self.database.read() as transaction:
            return windows.window(transaction, queue, start, end, parts, table)

    def read(
        self, part: Part, batch_rows: int = 10_000, columns: Sequence[str] | None = None
    ) -> Iterator[pyarrow.RecordBatch]:
        return reading.read(self.database, part, batch_rows, columns)

    def stream_position(self, queue: str, group: str) -> Mark | None:
        with self.database.read() as transaction:
            return windows.stream_position(transaction, queue, group)

    def advance(self, queue: str, group: str, mark: Mark, table: Table = "messages") -> None:
        with self.database.write() as transaction:
            windows.advance(transaction, queue, group, mark, table)

    # -- staging ---------------------------------------------------------------------------------------------------

    def stage(self, queue: str, key: str, part: str, batches: Iterable[pyarrow.RecordBatch]) -> int:
        return staging.stage(self.database, queue, key, part, batches)

    def release(self, queue: str, key: str, parts: Sequence[str]) -> int | None:
        with self.database.write() as transaction:
            return staging.release(transaction, queue, key, parts)

    def discard(self, queue: str, key: str) -> None:
        with self.database.write() as transaction:
            staging.discard(transaction, queue, key)

    # -- the ledger ------------------------------------------------------------------------------------------------

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
