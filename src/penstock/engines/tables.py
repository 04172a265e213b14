"""The tables that can be read by window, as Arrow schemas: the same columns from every engine.

A row of `messages` is a message of the log. `archive` and `dead_letters` have the same columns and how the message
ended in a group; `audit` has one row per message and entry. `entry` numbers the events of the store, so (queue, id,
group, entry) identifies a row of `archive` and of `audit`: a message that was redriven and ended again has another row,
with a greater entry. A null `group` means all groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, get_args

from penstock.domain.errors import InvalidInput, MissingExtra
from penstock.domain.validation import nearest, shown
from penstock.engines.contract import Table

if TYPE_CHECKING:
    import pyarrow

TABLES: tuple[Table, ...] = get_args(Table)

# Name and kind of each column, and whether it may be null.
_MESSAGE = (
    ("position", "integer", False),
    ("id", "text", False),
    ("queue", "text", False),
    ("created_at", "time", False),
    ("priority", "small", False),
    ("shard", "small", False),
    ("content_type", "text", False),
    ("headers", "text", True),  # a JSON object
    ("expires_at", "time", True),
    ("deadline_at", "time", True),
    ("address", "text", True),
    ("key", "text", True),
    ("batch", "text", True),
    ("created_by", "text", False),
    ("available_at", "time", False),
    ("payload", "bytes", False),
)
# The columns of a message that a store keeps; its queue is known.
STORED = tuple(name for name, _, _ in _MESSAGE if name != "queue")
_ENDING = (
    ("group", "text", True),
    ("outcome", "text", False),
    ("reason", "text", True),
    ("attempts", "small", False),
)
_COLUMNS: dict[Table, tuple[tuple[str, str, bool], ...]] = {
    "messages": _MESSAGE,
    "archive": (
        ("entry", "integer", False),
        *_MESSAGE,
        *_ENDING,
        ("by", "text", False),
        ("finished_at", "time", False),
    ),
    "dead_letters": (*_MESSAGE, *_ENDING, ("died_at", "time", False)),
    "audit": (
        ("entry", "integer", False),
        ("position", "integer", False),
        ("id", "text", False),
        ("queue", "text", False),
        ("created_at", "time", False),
        ("at", "time", False),
        ("event", "text", False),
        ("state", "text", False),
        ("by", "text", False),
        ("group", "text", True),
        ("reason", "text", True),
        ("attempt", "small", False),
        ("token", "integer", True),
    ),
}


def check_table(value: object) -> Table:
    for table in TABLES:
        if value == table:
            return table
    raise InvalidInput(
        f"there is no table {shown(value)}: choose one of {', '.join(TABLES)}{nearest(str(value), TABLES)}"
    )


def columns_of(table: Table) -> tuple[str, ...]:
    return tuple(name for name, _, _ in _COLUMNS[table])


def check_columns(table: Table, columns: Sequence[str] | None) -> tuple[str, ...]:
    """The given columns in that order, or all columns."""
    known = columns_of(table)
    if columns is None:
        return known
    for column in columns:
        if column not in known:
            raise InvalidInput(
                f"{table} has no column {shown(column)}: it has {', '.join(known)}{nearest(column, known)}"
            )
    if not columns or len(set(columns)) < len(columns):
        raise InvalidInput(f"columns must name each column of {table} at most once, and at least one: {shown(columns)}")
    return tuple(columns)


def schema(table: Table, columns: Sequence[str] | None = None) -> pyarrow.Schema:
    return _schema(table, check_columns(table, columns))


@cache
def _schema(table: Table, columns: tuple[str, ...]) -> pyarrow.Schema:
    arrow = pyarrow_module()
    types = {
        "integer": arrow.int64(),
        "small": arrow.int32(),
        "text": arrow.string(),
        "bytes": arrow.binary(),
        "time": arrow.timestamp("us", tz="UTC"),
    }
    fields = {name: arrow.field(name, types[kind], nullable=nullable) for name, kind, nullable in _COLUMNS[table]}
    return arrow.schema([fields[name] for name in columns])


def pyarrow_module() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise MissingExtra(
            "windows are read as Arrow, which needs pyarrow: pip install 'penstock-queue[spark]'"
        ) from None
    return pyarrow
