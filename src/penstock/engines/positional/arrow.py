"""Convert rows to Arrow record batches, column by column, without touching single values in Python.

Derived columns are computed by Arrow and NumPy: ids that Penstock made (they follow from time and position), and
defaults that are stored as null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.domain import refusals
from penstock.domain.message import BYTES, SYSTEM
from penstock.domain.results import Part
from penstock.engines import tables
from penstock.engines.contract import Table
from penstock.engines.identities import made_ids
from penstock.engines.positional import queues
from penstock.engines.positional.database import PositionalDatabase, Transaction
from penstock.engines.positional.log import WITHDRAWN

if TYPE_CHECKING:
    import pyarrow

Rows = list[tuple[Any, ...]]
# Greater than any group id, so that a range starts at its first position.
AFTER_ALL = 2**63 - 1
# The byte limit of a record batch. It is checked after every few rows, and after each row when payloads are large.
BATCH_BYTES = 16 * 1024 * 1024
PIECE_ROWS = 16

# The order of the columns in the statements.
_PLAIN_MESSAGE = ("is_more", "position", "created_at", "priority", "shard", "content_type", "payload")
_ENDING = ("entry", "group", "outcome", "reason", "attempts", "by", "finished_at")
_SELECTED: dict[str, tuple[str, ...]] = {
    "messages": tables.STORED,
    "plain_messages": _PLAIN_MESSAGE,
    "archive": (*tables.STORED, *_ENDING),
    "plain_archive": (*_PLAIN_MESSAGE, *_ENDING),
    "dead_letters": (*tables.STORED, "group_id", "group", "outcome", "reason", "attempts", "died_at"),
    "audit": (
        "position", "id", "created_at",
        "entry", "group", "state", "reason", "attempt", "by", "at", "event", "token",
    ),
}  # fmt: skip


def read(
    database: PositionalDatabase, part: Part, batch_rows: int, columns: Sequence[str] | None
) -> Iterator[pyarrow.RecordBatch]:
    """Check the arguments immediately; the rows are read lazily."""
    table = tables.check_table(part.table)
    return _batches(database, part, table, batch_rows, tables.check_columns(table, columns))


def _batches(
    database: PositionalDatabase, part: Part, table: Table, batch_rows: int, columns: tuple[str, ...]
) -> Iterator[pyarrow.RecordBatch]:
    """One transaction per batch: behind the horizon nothing changes, and a slow reader must not hold a snapshot
    open."""
    reader = _Reader(part, table, columns)
    count = 0
    while reader.place is not None:
        with database.read() as transaction:
            rows = reader.next(transaction, batch_rows)
        if rows:
            count += len(rows)
            batch = _record_batch(rows, reader.selected, tables.schema(table, columns), part.queue, database.salt)
            rows = []  # they are not kept while others use the batch
            yield batch
    if count != part.count and table != "dead_letters":
        raise refusals.rows_removed(part, table, count)


class _ReadPosition(NamedTuple):
    """The last row read, and the end of the range."""

    after_entry: int
    after: int
    last: int


class _Reader:
    """Reads the ranges of a part in order; a batch may span several of them."""

    def __init__(self, part: Part, table: Table, columns: tuple[str, ...]) -> None:
        self.part = part
        self.table = table
        self.wanted = {"payload": "payload" in columns, "headers": "headers" in columns}
        # Messages and dead letters are read by position, audit entries by number.
        self.by_position = table in ("messages", "dead_letters")
        self.tie = {"messages": None, "dead_letters": "group_id"}.get(table, "entry")
        self.queue_id: int | None = None
        self.piece_rows = 1
        self.begun = 0
        self.place = self._begin()
        self._select(f"plain_{table}" if table in ("messages", "archive") else table)

    def _begin(self) -> _ReadPosition | None:
        if self.begun == len(self.part.ranges):
            return None
        first, last = self.part.ranges[self.begun]
        self.begun += 1
        return _ReadPosition(AFTER_ALL, first - 1, last) if self.by_position else _ReadPosition(first, 0, last)

    def _select(self, statement: str) -> None:
        self.statement = f"read_{statement}"
        self.selected = _SELECTED[statement]

    def next(self, transaction: Transaction, limit: int) -> Rows:
        if self.queue_id is None:
            self.queue_id = queues.get(transaction, self.part.queue).queue_id
        before = self.place, self.begun
        rows = self._fill(transaction, limit)
        if self.selected[0] == "is_more" and any(row[0] for row in rows):
            # One row has more than a payload, and others probably too: read all columns from here on.
            self._select(self.table)
            self.place, self.begun = before
            rows = self._fill(transaction, limit)
        return rows

    def _fill(self, transaction: Transaction, limit: int) -> Rows:
        rows: Rows = []
        room = BATCH_BYTES
        while self.place is not None and len(rows) < limit and room > 0:
            bindings = {**self.place._asdict(), **self.wanted, "queue_id": self.queue_id, "limit": limit - len(rows)}
            found, room = self._take(transaction, bindings, room)
            rows = rows + found if rows else found
            is_full = len(rows) == limit or room <= 0
            self.place = self._after(rows[-1], self.place) if is_full else self._begin()
        return rows

    def _take(self, transaction: Transaction, bindings: dict[str, Any], room: int) -> tuple[Rows, int]:
        """Rows of one range until the byte limit is reached, and the bytes that are left."""
        if not self.wanted["payload"]:
            return transaction.rows(self.statement, bindings), room
        rows: Rows = []
        payload = itemgetter(self.selected.index("payload"))
        cursor = transaction.stream(self.statement, bindings)
        try:
            while room > 0 and (piece := list(islice(cursor, self.piece_rows))):
                rows += piece
                size = sum(map(len, map(payload, piece)))
                room -= size
                is_small = size * PIECE_ROWS < BATCH_BYTES * len(piece)
                self.piece_rows = min(PIECE_ROWS, 2 * self.piece_rows) if is_small else 1
        finally:
            cursor.close()
        return rows, room

    def _after(self, row: tuple[Any, ...], place: _ReadPosition) -> _ReadPosition:
        tie = 0 if self.tie is None else row[self.selected.index(self.tie)]
        return place._replace(after_entry=tie, after=row[self.selected.index("position")])


# -- columns -------------------------------------------------------------------------------------------------------


def _record_batch(
    rows: Rows, selected: tuple[str, ...], schema: pyarrow.Schema, queue: str, salt: int
) -> pyarrow.RecordBatch:
    made = _Columns(dict(zip(selected, zip(*rows, strict=True), strict=True)), queue, salt, len(rows))
    return tables.pyarrow_module().record_batch([made.column(field) for field in schema], schema=schema)


class _Columns:
    def __init__(self, read: dict[str, tuple[Any, ...]], queue: str, salt: int, count: int) -> None:
        self.read = read
        self.queue = queue
        self.salt = salt
        self.count = count
        self.arrow = tables.pyarrow_module()

    def column(self, field: pyarrow.Field) -> pyarrow.Array:
        special = _SPECIAL.get(field.name)
        return self.plain(field.name, field.type) if special is None else special(self, field)

    def plain(self, name: str, kind: pyarrow.DataType) -> pyarrow.Array:
        found = self.read.get(name)
        return self.arrow.nulls(self.count, kind) if found is None else self.arrow.array(found, kind)

    def or_else(self, field: pyarrow.Field, otherwise: Any) -> pyarrow.Array:
        import pyarrow.compute

        return pyarrow.compute.coalesce(self.plain(field.name, field.type), otherwise)

    def ids(self, field: pyarrow.Field) -> pyarrow.Array:
        chosen = self.plain("id", field.type)
        if chosen.null_count == 0:
            return chosen
        made = made_ids(self.read["created_at"], self.salt, self.read["position"])
        if chosen.null_count == self.count:
            return made
        import pyarrow.compute

        return pyarrow.compute.coalesce(chosen, made)

    def priorities(self, field: pyarrow.Field) -> pyarrow.Array:
        """Messages that ended while held are stored in lanes with negative priorities."""
        found = self.read["priority"]
        if min(found) < 0:
            found = tuple(one if one >= 0 else WITHDRAWN - one for one in found)
        return self.arrow.array(found, field.type)


_SPECIAL: dict[str, Callable[[_Columns, Any], Any]] = {
    "id": _Columns.ids,
    "queue": lambda columns, field: columns.arrow.repeat(
        columns.arrow.scalar(columns.queue, field.type), columns.count
    ),
    "priority": _Columns.priorities,
    "content_type": lambda columns, field: columns.or_else(field, BYTES),
    "created_by": lambda columns, field: columns.or_else(field, SYSTEM),
    "by": lambda columns, field: columns.or_else(field, SYSTEM),
    "available_at": lambda columns, field: columns.or_else(field, columns.plain("created_at", field.type)),
}
