"""Bulk reads: COPY in the server's binary format, which ADBC turns into Arrow columns without Python touching a
value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from psycopg import ClientCursor
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.domain.errors import MissingExtra, StoreError
from penstock.engines.postgres.connection import Database

if TYPE_CHECKING:
    import pyarrow

# The rows are wanted in the order of an index, all of them: what the planner thinks of tables that were never analysed
# must not talk it into sorting.
PLANNING = (
    "-c work_mem=256MB -c jit=off -c enable_seqscan=off -c enable_bitmapscan=off -c enable_hashjoin=off "
    "-c enable_mergejoin=off -c enable_sort=off"
)
# How much of an answer becomes one record batch. The driver's own 16 MB are memory that the system hands out anew, page
# by page, for every batch; and rows may be large.
BATCH_BYTES = 3 * 1024 * 1024
_BATCH_BYTES = "adbc.postgresql.batch_size_hint_bytes"


def rows(database: Database, statement: str, parameters: Sequence[Any] = ()) -> Iterator[pyarrow.RecordBatch]:
    with _executed(database, statement, parameters) as cursor:
        yield from cursor.fetch_record_batch()


def table(database: Database, statement: str, parameters: Sequence[Any]) -> pyarrow.Table:
    """The same, all in memory."""
    with _executed(database, statement, parameters) as cursor:
        found: pyarrow.Table = cursor.fetch_arrow_table()
        return found


@contextmanager
def _executed(database: Database, statement: str, parameters: Sequence[Any]) -> Iterator[Any]:
    """COPY takes no parameters: numbers and marks, which the engine made itself, are written into the statement."""
    text = statement
    if parameters:
        with database.connection() as connection:
            text = ClientCursor(connection).mogrify(statement, parameters)
    with _translated(database):
        arrow, cursor = _begun(database, text)
        try:
            yield cursor
            cursor.close()
        except BaseException:
            # What is left of the answer would be in the way of the next one.
            _close(cursor)
            _close(arrow)
            raise
    database.waiting.append(arrow)


def _begun(database: Database, text: str) -> tuple[Any, Any]:
    """To connect takes longer than many a read, because the driver asks for all types: connections are used again,
    unless the server has ended them meanwhile."""
    while database.waiting:
        arrow = database.waiting.pop()
        try:
            return arrow, _execute(arrow, text)
        except _dbapi().Error:
            _close(arrow)
    arrow = _dbapi().connect(_place(database.url), autocommit=True)
    try:
        return arrow, _execute(arrow, text)
    except BaseException:
        _close(arrow)
        raise


def _execute(arrow: Any, text: str) -> Any:
    cursor = arrow.cursor()
    try:
        cursor.adbc_statement.set_options(**{_BATCH_BYTES: str(BATCH_BYTES)})
        cursor.execute(text)
    except BaseException:
        _close(cursor)
        raise
    return cursor


def _close(one: Any) -> None:
    with suppress(_dbapi().Error):
        one.close()


def _place(url: str) -> str:
    """The same server, with settings for reading."""
    options = conninfo_to_dict(url).get("options") or ""
    return make_conninfo(url, options=f"{options} {PLANNING}".strip())


def _dbapi() -> Any:
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError:
        raise MissingExtra(
            "reading many rows of PostgreSQL needs adbc-driver-postgresql: pip install 'penstock-queue[postgres]'"
        ) from None
    return dbapi


@contextmanager
def _translated(database: Database) -> Iterator[None]:
    try:
        yield
    except _dbapi().Error as error:
        raise StoreError(f"{database.name}: {str(error).strip().splitlines()[0]}") from error
