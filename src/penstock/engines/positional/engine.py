"""The queue of the contract over positions: each verb is one transaction around the module that implements it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from penstock.domain import refusals
from penstock.domain.errors import PenstockError, StoreError
from penstock.domain.lifecycle import State
from penstock.domain.message import Draft, Message
from penstock.domain.policy import Policy
from penstock.domain.results import (
    AddressState,
    ConsumerInfo,
    DeadLetter,
    GroupStats,
    LeaseInfo,
    QueueInfo,
    Repair,
    SweepReport,
)
from penstock.domain.settlement import Settle, Settled
from penstock.engines.contract import Edge, Operation, Receipt
from penstock.engines.flaws import Choices
from penstock.engines.positional import (
    addresses,
    consumers,
    counts,
    cursors,
    dead_letters,
    deletion,
    deliveries,
    inspection,
    leases,
    messages,
    queues,
    removal,
    repair,
    settlements,
    sweep,
)
from penstock.engines.positional.database import PositionalDatabase, Transaction, Wakeup
from penstock.engines.positional.deliveries import ReceiveStart
from penstock.engines.positional.facets import (
    BatchFacet,
    InspectionFacet,
    LedgerFacet,
    ScheduleFacet,
    SinkFacet,
    StreamFacet,
    WindowFacet,
)
from penstock.engines.positional.sweep_plan import SweepPlan

T = TypeVar("T")


class PositionalEngine(BatchFacet, ScheduleFacet, InspectionFacet, StreamFacet, WindowFacet, SinkFacet, LedgerFacet):
    """All of the contract but `name`, `capabilities`, `migrate` and `doctor`, which depend on the database."""

    def __init__(self, database: PositionalDatabase, wakeup: Wakeup) -> None:
        self.database = database
        self.wakeup = wakeup
        self._sweep_plan = SweepPlan()

    # -- the store ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self.wakeup.close()
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

    def end_interrupted(self) -> None:
        self.database.end_interrupted()

    def wait(self, seen: int, timeout_seconds: float) -> int:
        return self.wakeup.wait(seen, timeout_seconds)

    def seen(self) -> int:
        return self.wakeup.seen()

    # -- queues -------------------------------------------------------------------------------------------------------

    def declare(self, queue: str, changes: dict[str, Any]) -> Policy:
        with self.database.write(queue) as transaction:
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
        with self.database.write(queue) as transaction:
            return deletion.flush(transaction, queue)

    def delete(self, queue: str) -> int:
        with self.database.write(queue) as transaction:
            return deletion.delete(transaction, queue)

    # -- messages -----------------------------------------------------------------------------------------------------

    def send(self, queue: str, drafts: Sequence[Draft], transaction: object = None) -> list[str]:
        if not drafts:
            return []
        write = self.database.write(queue) if transaction is None else self.database.caller_write(transaction)
        with write as own:
            return messages.send(own, queue, drafts)

    def receive(
        self,
        queue: str,
        group: str | None,
        consumer: str,
        limit: int,
        lease_seconds: float | None,
        needs_group: bool = False,
    ) -> Receipt:
        """A receive that a power cut undoes is only a redelivery, so it is not flushed; an at_most_once message must
        never be delivered again, so there it is."""
        receive = partial(deliveries.receive, consumer=consumer, limit=limit, lease_seconds=lease_seconds)
        return self._receive(queue, group, needs_group, receive)

    def receive_each(
        self,
        queue: str,
        group: str | None,
        shares: Sequence[tuple[str, int]],
        lease_seconds: float | None,
        needs_group: bool = False,
    ) -> list[Receipt]:
        receive = partial(deliveries.receive_each, shares=shares, lease_seconds=lease_seconds)
        return self._receive(queue, group, needs_group, receive)

    def _receive(
        self, queue: str, group: str | None, needs_group: bool, receive: Callable[[Transaction, ReceiveStart], T]
    ) -> T:
        durable = False
        while True:
            with self.database.write(queue, durable) as transaction:
                start = deliveries.begin(transaction, queue, group, needs_group)
                stored, _, _ = start
                if durable or not stored.policy.at_most_once:
                    return receive(transaction, start)
            durable = True

    def ready_in(self, queue: str, group: str | None) -> float | None:
        with self.database.read(queue) as transaction:
            return inspection.ready_in(transaction, queue, group)

    def settle(self, queue: str, group: str, settles: Sequence[Settle]) -> list[Settled]:
        with self.database.write(queue) as transaction:
            return settlements.settle(transaction, queue, group, settles)

    def ack_all(self, queue: str, group: str, token: int, positions: list[int]) -> bool:
        with self.database.write(queue) as transaction:
            return settlements.ack_all(transaction, queue, group, token, positions)

    def extend(self, queue: str, group: str, leases: Sequence[tuple[int, int]], seconds: float) -> list[int | None]:
        with self.database.write(queue) as transaction:
            return settlements.extend(transaction, queue, group, leases, seconds)

    def position(self, queue: str, message_id: str) -> int:
        with self.database.read(queue) as transaction:
            place = inspection.place(transaction, queues.get(transaction, queue), message_id)
        if place.position is None:
            raise refusals.message_held(message_id)
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
                return leases.of_messages(transaction, queue, group, ids)
            return leases.every(transaction, queue, group, consumer, after, limit)

    def remove(self, queue: str, ids: Sequence[str]) -> int:
        with self.database.write(queue) as transaction:
            return removal.remove(transaction, queue, ids)

    def trim(self, queue: str, *, upto: int | None = None, keep: int | None = None) -> int:
        """In several transactions, because other writers wait for each."""
        removed, has_more = 0, True
        while has_more:
            with self.database.write(queue) as transaction:
                count, has_more = removal.trim(transaction, queue, upto, keep)
            removed += count
        return removed

    def find(self, queue: str, message_id: str) -> Message:
        with self.database.read(queue) as transaction:
            return inspection.find(transaction, queue, message_id)

    # -- groups -------------------------------------------------------------------------------------------------------

    def seek(self, queue: str, group: str, target: int | str, is_time: bool = False) -> int:
        with self.database.write(queue) as transaction:
            return cursors.seek(transaction, queue, group, target, is_time)

    def groups(self, queue: str) -> list[str]:
        with self.database.read() as transaction:
            found = queues.find(transaction, queue)
            return [] if found is None else [group.name for group in queues.groups(transaction, found)]

    def forget(self, queue: str, group: str) -> bool:
        with self.database.write(queue) as transaction:
            return queues.forget(transaction, queue, group)

    def stats(self, queue: str) -> dict[str, GroupStats]:
        with self.database.read(queue) as transaction:
            return counts.stats(transaction, queue)

    # -- addresses ----------------------------------------------------------------------------------------------------

    def address(self, queue: str, address: str) -> AddressState | None:
        with self.database.read() as transaction:
            return addresses.address(transaction, queue, address)

    def is_live(self, queue: str, address: str) -> bool:
        with self.database.read() as transaction:
            return addresses.is_live(transaction, queue, address)

    def ended(self, queue: str, message_id: str) -> AddressState | None:
        with self.database.read(queue) as transaction:
            return addresses.ended(transaction, queue, message_id)

    # -- consumers ----------------------------------------------------------------------------------------------------

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
        with self.database.write(queue) as transaction:
            return consumers.register(transaction, queue, group, name, *settings)

    def heartbeat(self, queue: str, group: str, name: str) -> ConsumerInfo:
        with self.database.write(queue) as transaction:
            return consumers.heartbeat(transaction, queue, group, name)

    def deregister(self, queue: str, group: str, name: str) -> int:
        with self.database.write(queue) as transaction:
            return consumers.deregister(transaction, queue, group, name)

    def consumers(self, queue: str | None = None) -> list[ConsumerInfo]:
        with self.database.read() as transaction:
            return consumers.every(transaction, queue)

    # -- dead letters -------------------------------------------------------------------------------------------------

    def dead_letters(
        self, queue: str, group: str | None, outcome: State | None, limit: int, before: Edge | None
    ) -> list[DeadLetter]:
        with self.database.read() as transaction:
            return dead_letters.every(transaction, queue, group, outcome, limit, before)

    def redrive(self, queue: str, group: str, ids: Sequence[str] | None, outcome: State | None, limit: int) -> int:
        with self.database.write(queue) as transaction:
            return dead_letters.redrive(transaction, queue, group, ids, outcome, limit)

    def purge(self, queue: str, group: str, ids: Sequence[str] | None, outcome: State | None, limit: int) -> int:
        with self.database.write(queue) as transaction:
            return dead_letters.purge(transaction, queue, group, ids, outcome, limit)

    # -- maintenance --------------------------------------------------------------------------------------------------

    def sweep(self) -> SweepReport:
        return sweep.sweep(self.database, self._sweep_plan)

    def claim_sweep(self, every_seconds: float) -> bool:
        return sweep.claim(self.database, self.wakeup, every_seconds)

    def repair(self, dry_run: bool, choices: Choices) -> list[Repair]:
        return repair.repair(self.database, dry_run, choices)
