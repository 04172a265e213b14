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

# All rows are read in index order. Without these settings the planner would sort tables that were never analysed.
PLANNING = (
    "-c work_mem=256MB -c jit=off -c enable_seqscan=off -c enable_bitmapscan=off -c enable_hashjoin=off "
    "-c enable_mergejoin=off -c enable_sort=off"
)
# The size of a record batch. The driver's default of 16 MB is memory that the system maps anew, page by page, for every
# batch; and rows may be large.
BATCH_BYTES = 3 * 1024 * 1024
_BATCH_BYTES = "adbc.postgresql.batch_size_hint_bytes"


def rows(database: Database, statement: str, parameters: Sequence[Any] = ()) -> Iterator[pyarrow.RecordBatch]:
    with _executed(database, statement, parameters) as cursor:
        yield from cursor.fetch_record_batch()


def table(database: Database, statement: str, parameters: Sequence[Any]) -> pyarrow.Table:
    """The same as one table in memory."""
    with _executed(database, statement, parameters) as cursor:
        found: pyarrow.Table = cursor.fetch_arrow_table()
        return found


@contextmanager
def _executed(database: Database, statement: str, parameters: Sequence[Any]) -> Iterator[Any]:
    """Run a statement. COPY takes no parameters, so the engine's numbers and marks are formatted into the text."""
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
            # Unread rows of this result would precede the next one.
            _close(cursor)
            _close(arrow)
            raise
    database.waiting.append(arrow)


def _begun(database: Database, text: str) -> tuple[Any, Any]:
    """Execute on an idle connection or a new one. Connecting takes longer than many reads, because the driver loads all
    types; idle connections that the server has ended are dropped."""
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
    """The URL with settings for the planner."""
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
