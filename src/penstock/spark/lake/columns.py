"""The columns of a lake's tables: those that the engines read (`penstock.engines.tables`), and `window`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engines import tables
from penstock.engines.contract import Table

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

LAKE_TABLES: tuple[Table, ...] = ("audit", "archive", "dead_letters")
# The time of a row; its day names the directory.
TIMES = {"audit": "at", "archive": "finished_at", "dead_letters": "died_at"}


def arrow_schema(table: Table) -> pyarrow.Schema:
    """The columns of a lake's table: those of the store, nullable as in Spark, and the window that added the row."""
    arrow = tables.pyarrow_module()
    fields = [field.with_nullable(True) for field in tables.schema(table)]
    return arrow.schema([*fields, arrow.field("window", arrow.int64())])


def spark_schema(table: Table) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(arrow_schema(table))
