"""Files of the computed tables: staged, then published in one change of the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, StructType

from penstock.domain.timestamps import to_time
from penstock.spark.computed_columns import DATED, LIFECYCLES, dated, empty_frame
from penstock.spark.lake.compaction import SETTLED, SMALL_FILES
from penstock.spark.lake.layout import TABLES
from penstock.spark.lake.manifest import FileEntry, TablesState
from penstock.spark.lake.writer import open_output

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.lake.folders import File
    from penstock.spark.lake.lake import Lake

# Hive's directory name for a null partition value.
NO_DAY = "day=__HIVE_DEFAULT_PARTITION__"
LIVES = "lives"
READ_LIVES = f"{LIVES}/is_read=true"


class StagedTables:
    """The staged tables of one update. Tables partitioned by day keep the files of days that are not `rewritten`; all
    others are replaced."""

    def __init__(self, spark: SparkSession, lake: Lake, path: str) -> None:
        self.spark = spark
        self.lake = lake
        self.path = path
        self.rewritten: set[str] = set()
        self.is_recomputed = False

    def replace_all(self, *, is_unknown: bool) -> None:
        """Replace all tables. Tables of an earlier version are not in the manifest."""
        self.is_recomputed = True
        if is_unknown:
            self.lake.folder.remove(TABLES)

    # -- current tables ----------------------------------------------------------------------------------------------

    def kept(self, name: str, schema: StructType) -> DataFrame:
        """A table as the last update left it."""
        return kept_frame(self.spark, self.lake, name, schema, [] if self.is_recomputed else None)

    def kept_days(self, name: str, schema: StructType) -> DataFrame | None:
        """The rows of rewritten days."""
        paths = [path for path in self.lake.manifest.files(f"{TABLES}/{name}") if _day(path) in self.rewritten]
        return None if self.is_recomputed or not paths else kept_frame(self.spark, self.lake, name, schema, paths)

    # -- staged tables -----------------------------------------------------------------------------------------------

    def write(self, name: str, frame: DataFrame, *, by_day: bool = False) -> None:
        writer = frame.write.mode("append")
        (writer.partitionBy("day") if by_day else writer).parquet(self._under(f"{TABLES}/{name}"))

    def write_lives(self, lives: DataFrame) -> None:
        """Lifecycles that do not belong to their group are only read to find skipped messages."""
        lives.write.partitionBy("is_read", "day").parquet(self._under(LIVES))

    def read(self, name: str, schema: StructType) -> DataFrame:
        """A staged table."""
        where = READ_LIVES if name == "lifecycles" else f"{TABLES}/{name}"
        return _frame(self.spark, schema, self._under(where), [self._under(file) for file in self._listed(where)])

    def write_arrow(self, name: str, table: pyarrow.Table) -> None:
        """Write a small table from the driver."""
        from pyarrow import parquet

        with open_output(self._under(f"{TABLES}/{name}/{uuid4().hex}.parquet")) as file:
            parquet.write_table(table, file, compression="zstd")

    def ended_and_skipped(self) -> DataFrame:
        """For each queue and group, whether a message has ended in all groups, and the last position of a message that
        does not belong to the group."""
        found = [self._under(file) for file in self._listed(LIVES)]
        schema = StructType([*dated(LIFECYCLES), StructField("is_read", BooleanType())])
        is_ended = F.col("is_read") & F.col("day").isNotNull()
        skipped = F.when(~F.col("is_read") & F.col("group").isNotNull(), F.col("position"))
        lives = _frame(self.spark, schema, self._under(LIVES), found)
        return lives.groupBy("queue", "group").agg(F.max(is_ended).alias("ended"), F.max(skipped).alias("position"))

    def _under(self, name: str) -> str:
        return self.lake.folder.under(self.path, name)

    def _listed(self, name: str) -> list[str]:
        return [file.path.removeprefix(f"{self.path}/") for file in self._files(name)]

    def _files(self, name: str) -> list[File]:
        return self.lake.folder.list(f"{self.path}/{name}", ".parquet")

    # -- the change --------------------------------------------------------------------------------------------------

    def stage(self, history: TablesState) -> None:
        adds = []
        for where, target in ((TABLES, TABLES), (READ_LIVES, f"{TABLES}/lifecycles")):
            for file in self._files(where):
                place = target + file.path.removeprefix(f"{self.path}/{where}")
                adds.append((file.path, place, FileEntry(file.size, 0, "")))
        removes = [path for path in self.lake.manifest.files(TABLES) if self._is_replaced(path)]
        self.lake.manifest.stage(adds=tuple(adds), removes=tuple(removes), history=history)

    def _is_replaced(self, path: str) -> bool:
        return self.is_recomputed or _table(path) not in DATED or NO_DAY in path or _day(path) in self.rewritten


def kept_frame(
    spark: SparkSession, lake: Lake, name: str, schema: StructType, paths: list[str] | None = None
) -> DataFrame:
    """A table of the lake, or some of its files."""
    chosen = list(lake.manifest.files(f"{TABLES}/{name}")) if paths is None else paths
    return _frame(spark, schema, lake.folder.under(TABLES, name), [lake.folder.under(path) for path in chosen])


def _frame(spark: SparkSession, schema: StructType, base: str, paths: list[str]) -> DataFrame:
    if not paths:
        return empty_frame(spark, schema)
    return spark.read.schema(schema).option("basePath", base).parquet(*paths)


def crowded_days(lake: Lake) -> set[str]:
    """Past days with many files."""
    first_open = f"{to_time(lake.engine.now()) - SETTLED:%Y-%m-%d}"
    counts: dict[tuple[str, str], int] = {}
    for path in lake.manifest.files(TABLES):
        if _table(path) in DATED and NO_DAY not in path and _day(path) < first_open:
            counts[_table(path), _day(path)] = counts.get((_table(path), _day(path)), 0) + 1
    return {day for (_, day), count in counts.items() if count >= SMALL_FILES}


def _table(path: str) -> str:
    return path.split("/")[1]


def _day(path: str) -> str:
    return path.split("/")[2].removeprefix("day=")
