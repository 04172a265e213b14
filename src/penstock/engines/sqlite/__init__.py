"""The SQLite engine: the embedded default, one file, many processes."""

from penstock.engines.sqlite.engine import SqliteEngine
from penstock.engines.sqlite.opening import open_sqlite

__all__ = ["SqliteEngine", "open_sqlite"]
