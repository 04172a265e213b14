"""The seam between the queue and a database: what an engine over positions implements.

A position is a number that the engine gives to every message of the store. The queue relies on one thing: positions
become visible in the order of their numbers, so that a cursor which has passed a position never misses a message. An
engine with one writer has that for free; others serialise the transactions that append.

Statements are named. The queue knows only their names, their bindings (a tuple for `?`, a dictionary for `:name`) and
the columns they return, in which numbers are integers. Text that engines share is in `statements/` of this package
(`dialect.py`), the rest in `statements/` of each engine, one file for each module of this package."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from penstock.domain.errors import StoreUnavailable

Bindings = dict[str, Any] | tuple[Any, ...]
ResultRow = tuple[Any, ...]


class QueueHeld(StoreUnavailable):
    """Another transaction has had the queue for too long; nothing was changed."""


class Tokens:
    """The latest lease token that this process knows of."""

    __slots__ = ("latest",)

    def __init__(self) -> None:
        self.latest = 0

    def seen(self, token: int) -> None:
        self.latest = max(self.latest, token)

    def next(self, least: int) -> int:
        self.latest = max(self.latest + 1, least)
        return self.latest


class RowStream(Iterator[ResultRow], Protocol):
    """Rows of a result that is read while other statements run."""

    def close(self) -> None:
        """Give up the rest of the result."""


class Transaction(Protocol):
    """One transaction, with one point in time for all its statements."""

    @property
    def now(self) -> int:
        """The engine's clock when the transaction began, in microseconds."""

    @property
    def time(self) -> Any:
        """`now` as a binding of the first statement: an engine need not ask for the time before it."""

    @property
    def random(self) -> Callable[[], float]:
        """A source of random numbers from 0 to 1."""

    @property
    def salt(self) -> int:
        """The store's part of the ids that Penstock makes."""

    @property
    def tokens(self) -> Tokens:
        """Lease tokens given out or seen by this process."""

    @property
    def deaths(self) -> list[str]:
        """One line for each dead letter, logged once the transaction has committed."""

    def run(self, statement: str, bindings: Bindings = ()) -> None:
        """Run a statement whose result nobody reads."""

    def run_many(self, statement: str, rows: Iterable[ResultRow]) -> None:
        """Run a statement once for each row of bindings."""

    def rows(self, statement: str, bindings: Bindings = ()) -> list[ResultRow]:
        """All rows of the result."""

    def row(self, statement: str, bindings: Bindings = ()) -> ResultRow | None:
        """The first row, or None."""

    def value(self, statement: str, bindings: Bindings = ()) -> Any:
        """The first column of the first row, or None."""

    def changes(self, statement: str, bindings: Bindings = ()) -> int:
        """Run a statement and return the number of rows that it matched."""

    def stream(self, statement: str, bindings: Bindings = ()) -> RowStream:
        """Rows one at a time, for a result that may be long and is seldom read to its end."""

    def rows_of(self, statement: str, values: Sequence[int | str], bindings: dict[str, Any]) -> list[ResultRow]:
        """Rows of a statement with a list (`:values`) of any length."""

    def take_positions(self, queue_id: int, count: int) -> int:
        """Reserve consecutive positions for a queue; return the first. They are greater than all positions that the
        queue has had, and no other message ever has them."""

    def append_payloads(
        self, first: int, lane_id: int, content_type: str | None, expires_at: int | None, payloads: Sequence[bytes]
    ) -> None:
        """Append messages that differ only in their payload, at consecutive positions from `first`."""

    def add_run(self, lane_id: int, first: int, last: int) -> None:
        """Give positions to a lane: extend its last run when they follow it, else begin another."""


class PositionalDatabase(Protocol):
    """The connections of a store."""

    @property
    def salt(self) -> int:
        """The store's part of the ids that Penstock makes."""

    @property
    def clock(self) -> Callable[[], int]:
        """The engine's clock, in microseconds."""

    def write(
        self, queue: str | None = None, durable: bool = True, patient: bool = True
    ) -> AbstractContextManager[Transaction]:
        """A transaction that may append: committed when the block ends, rolled back when it raises. Inside another
        write of the same thread it is a savepoint. It begins once it is the only one that writes to `queue`. Without
        `durable` the engine need not flush it before it returns: a power cut may undo it. Without `patient` it does not
        wait long for a queue that somebody else has locked: it raises `QueueHeld`."""

    def read(self, queue: str | None = None) -> AbstractContextManager[Transaction]:
        """A snapshot that does not wait for writers; inside a write of the same thread, that write. `queue` is the one
        whose messages are read."""

    def caller_write(self, connection: object) -> AbstractContextManager[Transaction]:
        """A savepoint in the transaction that the caller has open on a connection of its own."""

    def end_interrupted(self) -> None:
        """End what an interrupted call of this thread has left open."""

    def close(self) -> None:
        """Close the connections; calls that are running end first."""


class Wakeup(Protocol):
    """How a waiting call learns of commits, by this process or another."""

    def seen(self) -> int:
        """A counter that grows with every commit noticed so far."""

    def wait(self, seen: int, timeout_seconds: float) -> int:
        """Block until the counter differs from `seen`, or until the timeout; return the counter."""

    def silent_write(self) -> AbstractContextManager[Transaction]:
        """A write that wakes nobody in this process and need not be durable: it makes no message ready."""

    def close(self) -> None:
        """End every wait."""
