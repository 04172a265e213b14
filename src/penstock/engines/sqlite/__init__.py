"""The SQLite engine: the embedded default, one file, many processes."""

from penstock.engines.sqlite.connection import absent_store
from penstock.engines.sqlite.engine import SqliteEngine, open_sqlite

__all__ = ["SqliteEngine", "absent_store", "open_sqlite"]
