"""The MariaDB and MySQL engine: the queue over positions on a server."""

from __future__ import annotations

import random as random_module
import time
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import count, islice
from typing import Any, TypeVar

import msgspec

from penstock.domain.errors import PenstockError, StoreUnavailable
from penstock.domain.lifecycle import State
from penstock.domain.message import Draft
from penstock.domain.results import Check, GroupStats
from penstock.domain.settlement import Settle, Settled
from penstock.domain.validation import check_integer, check_seconds
from penstock.engines.contract import Capabilities, Operation, Receipt
from penstock.engines.mariadb import arrivals, caller_transaction, doctor, location, migration
from penstock.engines.mariadb.connection import MariadbDatabase, lock
from penstock.engines.mariadb.errors import UndoneTransaction
from penstock.engines.mariadb.notify import CounterWatch
from penstock.engines.mariadb.short_calls import ShortCalls, ranges_of
from penstock.engines.positional import counts, deletion, messages
from penstock.engines.positional.database import QueueHeld
from penstock.engines.positional.engine import PositionalEngine
from penstock.engines.positional.ranges import contiguous_ranges
from penstock.engines.positional.settlements import is_plain_ack

F = TypeVar("F", bound=Callable[..., Any])
# A call that the server undid for the sake of another one is made again at least this often, and until `busy_seconds`
# have passed.
TRIES = 10
FIRST_PAUSE_SECONDS = 0.005
LONGEST_PAUSE_SECONDS = 0.1


class MariadbEngine(PositionalEngine):
    name = "mariadb"
    capabilities = Capabilities(receives_lightly=False, shares_leases=True)
    database: MariadbDatabase

    def __init__(self, database: MariadbDatabase) -> None:
        watch = CounterWatch(database)
        super().__init__(database, watch)
        self._short_calls = ShortCalls(database)
        database.on_commit = watch.committed

    def migrate(self) -> list[str]:
        return migration.migrate(self.database)

    def send(self, queue: str, drafts: Sequence[Draft], transaction: object = None) -> list[str]:
        if not drafts:
            return []
        if transaction is None:
            ids = self._short_calls.send(queue, drafts)
            return super().send(queue, drafts) if ids is None else ids
        with self.database.caller_write(transaction) as own:
            can_wait = arrivals.can_wait(drafts)
            caller_transaction.check_isolation(own, needs_latest=not can_wait)
            if can_wait:
                return arrivals.add(own, queue, drafts)
            lock(own, queue)
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
        receipt = self._short_calls.receive(queue, group, consumer, limit, lease_seconds)
        if receipt is None:
            return super().receive(queue, group, consumer, limit, lease_seconds, needs_group)
        return receipt

    def receive_each(
        self,
        queue: str,
        group: str | None,
        shares: Sequence[tuple[str, int]],
        lease_seconds: float | None,
        needs_group: bool = False,
    ) -> list[Receipt]:
        consumers = {consumer for consumer, _ in shares}
        if len(consumers) == 1:
            limit = sum(limit for _, limit in shares)
            joint = self._short_calls.receive(queue, group, consumers.pop(), limit, lease_seconds)
            if joint is not None:
                rows = iter(joint.rows)
                return [msgspec.structs.replace(joint, rows=list(islice(rows, limit))) for _, limit in shares]
        return super().receive_each(queue, group, shares, lease_seconds, needs_group)

    def settle(self, queue: str, group: str, settles: Sequence[Settle]) -> list[Settled]:
        if settles and all(map(is_plain_ack, settles)) and self._short_calls.ack(queue, group, ranges_of(settles)):
            return [Settled(one.id, State.SUCCEEDED) for one in settles]
        return super().settle(queue, group, settles)

    def ack_all(self, queue: str, group: str, token: int, positions: list[int]) -> bool:
        ranges = [(token, *part) for part in contiguous_ranges(positions)]
        return self._short_calls.ack(queue, group, ranges) or super().ack_all(queue, group, token, positions)

    def stats(self, queue: str) -> dict[str, GroupStats]:
        """Messages that wait for the lock of their queue count as well, so that counts need not wait for it."""
        with self.database.read(queue, waits=False) as transaction:
            found = counts.stats(transaction, queue)
            if not transaction.lacks_arrivals:
                return found
            ready, held = arrivals.waiting(transaction, queue)
        return {name: _with_waiting(group, ready, held) for name, group in found.items()}

    def unread(self, queue: str) -> int:
        with self.database.read(queue, waits=False) as transaction:
            found = counts.unread(transaction, queue)
            return found + (arrivals.waiting(transaction, queue)[0] if transaction.lacks_arrivals else 0)

    def count(self, queue: str) -> int:
        with self.database.read(queue, waits=False) as transaction:
            found = deletion.count(transaction, queue)
            return found + (sum(arrivals.waiting(transaction, queue)) if transaction.lacks_arrivals else 0)

    def together(self, operations: Sequence[Operation]) -> list[Any]:
        """Calls on a queue that somebody has locked must not delay the others: then each call is made for itself, and
        those that have to wait come last."""
        try:
            with self.database.write(patient=False):
                return super().together(operations)
        except QueueHeld:
            if self.database.current() is not None:
                raise
        results: list[Any] = [None] * len(operations)
        late: list[int] = []
        for place, operation in enumerate(operations):
            try:
                with self.database.write(patient=False):
                    results[place] = operation()
            except (QueueHeld, UndoneTransaction):
                late.append(place)
            except PenstockError as error:
                results[place] = error
        for place in late:
            try:
                results[place] = operations[place]()
            except PenstockError as error:
                results[place] = error
        return results

    def doctor(self) -> list[Check]:
        return doctor.examine(self.database)


def _with_waiting(group: GroupStats, ready: int, held: int) -> GroupStats:
    return msgspec.structs.replace(
        group,
        total=group.total + ready + held,
        available=group.available + ready,
        lag=group.lag + ready,
        held=group.held + held,
    )


def _retried(method: F) -> F:
    """Make a call again whose transaction was undone; inside another write, that one is made again."""

    @wraps(method)
    def call(self: MariadbEngine, *arguments: Any, **named: Any) -> Any:
        if self.database.current() is not None:
            return method(self, *arguments, **named)
        ends = time.monotonic() + self.database.busy_seconds
        for tries in count(1):
            try:
                return method(self, *arguments, **named)
            except UndoneTransaction as error:
                if tries >= TRIES and time.monotonic() > ends:
                    raise StoreUnavailable(
                        f"{self.database.name}: the call was undone {tries} times ({error}); nothing was changed: try "
                        "again"
                    ) from error
                time.sleep(min(FIRST_PAUSE_SECONDS * tries, LONGEST_PAUSE_SECONDS) * self.database.random())
        raise AssertionError

    return call  # type: ignore[return-value]


# Not retried: `stage` and `read` consume or produce an iterator; the others have no transaction of their own.
_ALONE = ("close", "now", "read", "seen", "stage", "wait")
for _name in dir(PositionalEngine):
    if not _name.startswith("_") and _name not in _ALONE and callable(getattr(PositionalEngine, _name)):
        setattr(MariadbEngine, _name, _retried(getattr(MariadbEngine, _name)))


def open_mariadb(
    url: str,
    clock: Callable[[], int] | None = None,
    random: Callable[[], float] = random_module.random,
    pool_size: int = 10,
    busy_seconds: float = 10,
) -> MariadbEngine:
    """Open the store. Nothing is connected yet, and the schema is not made: `migrate` does that."""
    check_integer("pool_size", pool_size, 1, 1000)
    check_seconds("busy_seconds", busy_seconds, above=True)
    return MariadbEngine(MariadbDatabase(location.parse(url), clock, random, pool_size, busy_seconds))
