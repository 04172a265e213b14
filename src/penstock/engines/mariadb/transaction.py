"""One transaction on a connection of a MySQL driver.

Statements whose result nobody reads wait until one is asked for, and are sent with it: a verb takes as many round trips
as it has questions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

from penstock.domain.errors import InvalidInput
from penstock.engines.mariadb.dialect import RULES
from penstock.engines.mariadb.link import Link, Results
from penstock.engines.mariadb.literals import Block, Fragment, PreparedBlock, Template
from penstock.engines.positional.database import Bindings, ResultRow, Tokens
from penstock.engines.positional.dialect import engine_statements

SQL = engine_statements("penstock.engines.mariadb", RULES)
_WRITES = {name: Block(text, locks=True) for name, text in SQL.blocks.items()}
_READS = {name: Block(text, locks=False) for name, text in SQL.blocks.items()}
# On a Galera cluster a lock is preceded by a change of the same row (docs/decisions/0310).
_CLUSTER_LOCKS = {
    "batch_queues": SQL.cluster_batch_queues,
    "find_batch": SQL.cluster_find_batch,
    "ledger_entry": SQL.cluster_ledger_entry,
    "lock_queue": SQL.cluster_lock_queue,
    "newest_batch": SQL.cluster_newest_batch,
    "next_batch": SQL.cluster_next_batch,
}
_CLUSTER_WRITES = {name: Block(text, locks=True, first=_CLUSTER_LOCKS.get(name)) for name, text in SQL.blocks.items()}
# Positions of a queue come from blocks of this many. Ids have 48 bits for positions.
BLOCK_BITS = 20
# Characters of one statement of many rows, and of all statements that wait.
MOST_CHARACTERS = 1 << 19
# Values of one list. Far below the number from which MariaDB turns a list into a table.
MOST_VALUES = 500
# The variable that `begin_time` sets.
NOW = Fragment("@penstock_now")
Placement = Callable[[], None]


class FetchedRows(Iterator[ResultRow]):
    """Rows that were read already, as a stream."""

    def __init__(self, rows: list[ResultRow]) -> None:
        self._rows = iter(rows)

    def __next__(self) -> ResultRow:
        return next(self._rows)

    def close(self) -> None:
        self._rows = iter(())


class StoreSalt:
    """The store's part of ids, once a transaction has read it."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: int | None = None


class MariadbTransaction:
    """`positional.database.Transaction` on MariaDB and MySQL."""

    def __init__(
        self,
        link: Link,
        clock: Callable[[], int] | None,
        random: Callable[[], float],
        salt: StoreSalt,
        tokens: Tokens,
        is_reading: bool = False,
        is_cluster: bool = False,
    ) -> None:
        self.random = random
        self._salt = salt
        self.tokens = tokens
        self.deaths: list[str] = []
        self.depth = 0
        self.has_changed = False
        self._link = link
        self._clock = clock
        self._is_cluster = is_cluster
        self._is_reading = is_reading
        self._has_begun = False
        self._now: int | None = None
        self._blocks = _READS if is_reading else _CLUSTER_WRITES if is_cluster else _WRITES
        self._waiting: list[str] = []
        self._size = 0
        # Results that are wanted of statements which wait, by the place of the statement.
        self._wanted: dict[int, Callable[[list[ResultRow]], None]] = {}
        self._placement: Placement | None = None
        # Whether a read does not see all messages of committed senders in the log.
        self.lacks_arrivals = False
        # The last position and the end of the block, of queues that this transaction has locked.
        self._ends: dict[int, tuple[int, int]] = {}

    def lock(self, queue: str, place: Placement) -> None:
        """Be the only writer of a queue. With the lock come the queue's last position and the time; `place` is called
        when messages have arrived whose senders have committed."""
        self._ask("lock_queue", {"name": queue}, self._know_end)
        if self._now is None and self._clock is None and not self._is_cluster:
            self._ask("begin_time", {}, self._know_time)
        self.check_arrivals(place, queue)

    def check_arrivals(self, place: Placement, queue: str | None = None) -> None:
        """With the first question, ask for messages whose senders have committed since (of a queue, or of all queues),
        and call `place` before it is answered."""

        def know(rows: list[ResultRow]) -> None:
            if rows[0][0]:
                self._placement = place

        if queue is None:
            self._ask("has_arrivals", {}, know)
        else:
            self._ask("has_arrivals_of", {"queue": queue}, know)

    def lack_arrivals(self) -> None:
        self.lacks_arrivals = True

    def _ask(self, statement: str, bindings: Bindings, know: Callable[[list[ResultRow]], None]) -> None:
        """Run a statement, and pass its rows to `know` when they come."""
        self._waiting += self._blocks[statement].render(bindings)
        self._wanted[len(self._waiting) - 1] = know

    def _know_end(self, rows: list[ResultRow]) -> None:
        for queue_id, last_position, block_end in rows:
            self._ends[queue_id] = last_position, block_end

    def _know_time(self, rows: list[ResultRow]) -> None:
        if self._now is None:
            self._now = rows[0][0]

    @property
    def now(self) -> int:
        if self._now is None:
            if self._clock is not None:
                self._now = self._clock()
            elif self._is_time_coming():
                self.flush()
            else:
                self._now = self.value("now")
        assert self._now is not None
        return self._now

    @property
    def time(self) -> Any:
        return NOW if self._is_time_coming() else self.now

    def _is_time_coming(self) -> bool:
        return self._now is None and self._know_time in self._wanted.values()

    @property
    def salt(self) -> int:
        if self._salt.value is None:
            self._salt.value = self.value("fact", {"name": "salt"})
        assert self._salt.value is not None
        return self._salt.value

    def run(self, statement: str, bindings: Bindings = ()) -> None:
        block = self._blocks[statement]
        self._wait(block.render(bindings), block.writes)

    def run_many(self, statement: str, rows: Iterable[ResultRow]) -> None:
        block = self._blocks[statement]
        if block.takes_rows:
            self._wait(block.render_rows(list(rows), MOST_CHARACTERS), block.writes)
        else:
            for row in rows:
                self._wait(block.render(row), block.writes)

    def rows(self, statement: str, bindings: Bindings = ()) -> list[ResultRow]:
        block = self._blocks[statement]
        self.has_changed |= block.writes
        self._waiting += block.render(bindings)
        rows, _ = self.flush()
        if self._placement is None or block.writes:
            return rows
        place, self._placement = self._placement, None
        place()
        return self.rows(statement, bindings)

    def rows_of(self, statement: str, values: Sequence[int | str], bindings: dict[str, Any]) -> list[ResultRow]:
        found: list[ResultRow] = []
        for start in range(0, len(values), MOST_VALUES):
            found += self.rows(statement, {**bindings, "values": values[start : start + MOST_VALUES]})
        return found

    def row(self, statement: str, bindings: Bindings = ()) -> ResultRow | None:
        rows = self.rows(statement, bindings)
        return rows[0] if rows else None

    def value(self, statement: str, bindings: Bindings = ()) -> Any:
        rows = self.rows(statement, bindings)
        return rows[0][0] if rows else None

    def changes(self, statement: str, bindings: Bindings = ()) -> int:
        self.run(statement, bindings)
        return self.flush()[1]

    def stream(self, statement: str, bindings: Bindings = ()) -> FetchedRows:
        return FetchedRows(self.rows(statement, bindings))

    def take_positions(self, queue_id: int, count: int) -> int:
        """From the queue's block; when that is used up, from a new one. Blocks are numbered by `auto_increment`, for
        which no transaction waits; the row of the queue is locked."""
        if count >= 1 << BLOCK_BITS:
            raise InvalidInput(f"{count:,} messages in one call: this engine takes at most {(1 << BLOCK_BITS) - 1:,}")
        if queue_id not in self._ends:
            self._know_end(self.rows("block_of_queue", {"queue_id": queue_id}))
        last, block_end = self._ends[queue_id]
        last += count
        if last <= block_end:
            self.run("set_last_position", {"queue_id": queue_id, "last": last})
        else:
            start = self.value("new_block", {"queue_id": queue_id}) << BLOCK_BITS
            last = start + count
            block_end = start + (1 << BLOCK_BITS) - 1
            self.run("begin_block", {"queue_id": queue_id, "last": last, "block_end": block_end})
        self._ends[queue_id] = last, block_end
        return last - count + 1

    def roll_back_to(self, depth: int) -> None:
        """Undo a call of several; positions that it took are given out again."""
        self.run("rollback_to", {"depth": depth})
        self._ends = {}

    def add_run(self, lane_id: int, first: int, last: int) -> None:
        self.run("add_run", {"lane_id": lane_id, "first": first, "last": last})

    def append_payloads(
        self, first: int, lane_id: int, content_type: str | None, expires_at: int | None, payloads: Sequence[bytes]
    ) -> None:
        common = (repeat(lane_id), repeat(self.now), repeat(content_type), repeat(expires_at))
        self.run_many("append_payloads", zip(range(first, first + len(payloads)), *common, payloads, strict=False))

    def run_text(self, statement: str) -> None:
        """Run a statement of a migration."""
        self._wait([statement], writes=True)

    def flush(self) -> tuple[list[ResultRow], int]:
        """Send the statements that wait; return the rows of the last result, and the count of the last statement."""
        statements, wanted = self._waiting, self._wanted
        self.discard()
        results = self._execute(statements)
        for place, know in wanted.items():
            know(results[place][0] or [])
        rows = next((rows for rows, _ in reversed(results) if rows is not None), [])
        return rows, results[-1][1]

    def _execute(self, statements: list[str]) -> Results:
        """On a cluster, a transaction that a conflict has ended must not go on statement by statement."""
        if not (self._is_cluster and self._has_begun):
            self._has_begun = not self._is_reading
            return self._link.execute(statements)
        return self._link.execute([SQL.check_transaction, *statements])[1:]

    def run_block(self, block: Template | PreparedBlock, bindings: dict[str, Any]) -> list[list[ResultRow]] | None:
        """The result sets of a compound statement; None when it cannot be run on this connection. It may give out
        positions."""
        self.flush_waiting()
        self._ends = {}
        answers = self._link.run_block(block, block.render(bindings))
        return None if answers is None else [rows for rows, _ in answers if rows is not None]

    def flush_waiting(self) -> None:
        """Send the statements that wait, if there are any."""
        if self._waiting:
            self.flush()

    def discard(self) -> None:
        """Forget the statements that wait."""
        self._waiting, self._size, self._wanted = [], 0, {}

    def _wait(self, statements: list[str], writes: bool) -> None:
        self.has_changed |= writes
        self._waiting += statements
        self._size += sum(map(len, statements))
        if self._size > MOST_CHARACTERS:
            self.flush()
