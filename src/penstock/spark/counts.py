"""Counts: additive rows from which the tables are computed.

The counts of two sets of messages can be added, and those of messages to be counted again can be subtracted. So the
counts of ended messages are kept and only new messages are counted. Times are truncated to buckets; counts of short
buckets can be merged into longer ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.spark.audit import stretch
from penstock.spark.computed_columns import COUNTS, OUTCOMES, READERS, conform
from penstock.spark.metrics import (
    ENTRIES,
    KEY,
    TIMED,
    TURNS,
    Parts,
    each_duration,
    each_spell,
    each_turn,
    flows,
    percentiles,
    was_there,
)
from penstock.spark.workers import KEY as WORKER_KEY
from penstock.spark.workers import LOADS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SUMMED = ("count", "also", "first_at", "last_at", "example")
IDENTITY = tuple(name for name in COUNTS.names if name not in SUMMED)
# Kinds of counts that are not table columns.
STATE, OLDER, FAILING = "state", "older", "failing"
SPELLS = ("later spell", "first spell")
WORKER = "worker "


def counted(lifecycles: DataFrame, failing: DataFrame) -> list[DataFrame]:
    """The counts of messages, from their lifecycles and failures: rows for `joined` to add up."""
    one = F.lit(1).alias("count")
    group = ("queue", "group")
    return [
        each_turn(lifecycles).select(*group, F.col("turn").alias("kind"), F.col("at").alias("starts_at"), one),
        each_duration(lifecycles).select(
            *(*group, F.col("what").alias("kind"), F.col("at").alias("starts_at"), F.col("seconds").alias("value"), one)
        ),
        each_spell(lifecycles).select(
            *(*group, F.when(F.col("is_first"), SPELLS[1]).otherwise(SPELLS[0]).alias("kind")),
            *(F.col("begins_at").alias("starts_at"), "ends_at", F.col("sent_at").alias("first_at"), one),
        ),
        lifecycles.where(was_there()).select(*group, F.lit(OLDER).alias("kind"), one),
        lifecycles.select(
            *(*group, F.lit(STATE).alias("kind"), F.col("state").alias("label"), one, F.col("deliveries").alias("also"))
        ),
        failing.select(
            *(*group, F.lit(FAILING).alias("kind"), F.col("pattern").alias("label"), F.col("times").alias("value")),
            *(one, F.col("ended").alias("also"), "first_at", "last_at", "example"),
        ),
    ]


def counted_flows(audit: DataFrame, width_seconds: float) -> DataFrame:
    """The counts of entries, which are final whatever happens to their messages later."""
    return _long(flows(audit, width_seconds), KEY, ENTRIES)


def counted_loads(loads: DataFrame) -> DataFrame:
    """The counts of workers' deliveries."""
    named = loads.withColumnsRenamed({name: f"{WORKER}{name}" for name in LOADS})
    return _long(named, WORKER_KEY, [f"{WORKER}{name}" for name in LOADS]).withColumnRenamed("worker", "label")


def _long(frame: DataFrame, key: Sequence[str], names: Sequence[str]) -> DataFrame:
    return frame.unpivot([F.col(name) for name in key], [F.col(name) for name in names], "kind", "count")


def taken_away(counts: DataFrame) -> DataFrame:
    """Negated counts, to subtract them. Minima and maxima stay."""
    return counts.withColumns({name: -F.col(name) for name in ("count", "also") if name in counts.columns})


def joined(frames: Sequence[DataFrame], width_seconds: float) -> DataFrame:
    """The sum of counts, in buckets of the given width."""
    whole = reduce(
        lambda one, other: one.unionByName(other),
        (frame.transform(_completed).transform(conform(COUNTS)) for frame in frames),
    )
    cut = whole.withColumns({name: stretch(F.col(name), width_seconds) for name in ("starts_at", "ends_at")})
    in_time = cut.where(F.col("ends_at").isNull() | (F.col("starts_at") < F.col("ends_at")))
    is_failing = F.col("kind") == FAILING
    example = F.min(F.struct("first_at", "example"))["example"]
    # Separate, because Spark sorts to aggregate strings.
    return _added(in_time.where(~is_failing), F.lit(None)).unionByName(_added(in_time.where(is_failing), example))


def _added(counts: DataFrame, example: Column) -> DataFrame:
    return (
        counts.groupBy(*IDENTITY)
        .agg(
            F.sum("count").alias("count"),
            F.sum("also").alias("also"),
            F.min("first_at").alias("first_at"),
            F.max("last_at").alias("last_at"),
            example.alias("example"),
        )
        .where((F.col("count") != 0) | (F.coalesce("also", F.lit(0)) != 0))
        .transform(conform(COUNTS))
    )


def _completed(frame: DataFrame) -> DataFrame:
    missing = {name: F.lit(None) for name in COUNTS.names if name not in frame.columns}
    return frame.withColumns(missing) if missing else frame


# -- tables of counts ------------------------------------------------------------------------------------------------


def parts_of(counts: DataFrame) -> Parts:
    """The inputs of metrics."""
    kind = F.col("kind")
    spelled = counts.where(kind.isin(*SPELLS))
    return Parts(
        flows=_wide(counts, KEY, ENTRIES),
        turns=_wide(counts, KEY, TURNS),
        durations=durations_of(counts),
        spells=spelled.select(
            *("queue", "group", (kind == SPELLS[1]).alias("is_first")),
            *(F.col("starts_at").alias("begins_at"), "ends_at", F.col("first_at").alias("oldest_sent_at")),
        ),
        older=counts.where(kind == OLDER).select("queue", "group", F.col("count").alias("messages")),
    )


def durations_of(counts: DataFrame) -> DataFrame:
    return counts.where(F.col("kind").isin(*TIMED)).select(
        *KEY, F.col("kind").alias("what"), F.col("value").alias("seconds"), F.col("count").alias("messages")
    )


def outcomes_of(counts: DataFrame) -> DataFrame:
    found = counts.where((F.col("kind") == STATE) & (F.col("count") > 0))
    return found.withColumnsRenamed({"label": "outcome", "count": "messages"}).transform(conform(OUTCOMES))


def readers_of(counts: DataFrame) -> DataFrame:
    """Each group over the whole period."""
    key = ("queue", "group")
    sums = counts.groupBy(*key).agg(
        F.coalesce(F.sum(F.when(F.col("kind") == TURNS[0], F.col("count"))), F.lit(0)).alias("sent"),
        F.coalesce(F.sum(F.when(F.col("kind") == STATE, F.col("also"))), F.lit(0)).alias("deliveries"),
    )
    found = sums.unionByName(percentiles(durations_of(counts), key), allowMissingColumns=True)
    return (
        found.where(F.col("queue").isNotNull())
        .groupBy(*key)
        .agg(*(F.max(name).alias(name) for name in found.columns if name not in key))
        .transform(conform(READERS))
    )


def times_of(counts: DataFrame) -> DataFrame:
    """How many messages failed how often with the same pattern, for `failures.kinds`."""
    return counts.where(F.col("kind") == FAILING).select(
        *("queue", "group", F.col("label").alias("pattern"), F.col("value").cast("long").alias("times")),
        *(F.col("count").alias("repeated"), F.col("also").alias("dead"), "first_at", "last_at", "example"),
    )


def loads_of(counts: DataFrame) -> DataFrame:
    wide = _wide(counts.withColumnRenamed("label", "worker"), WORKER_KEY, [f"{WORKER}{name}" for name in LOADS])
    return wide.withColumnsRenamed({f"{WORKER}{name}": name for name in LOADS})


def _wide(counts: DataFrame, key: Sequence[str], kinds: Sequence[str]) -> DataFrame:
    return counts.where(F.col("kind").isin(*kinds)).groupBy(*key).agg(*(_sum_of(kind) for kind in kinds))


def _sum_of(kind: str) -> Column:
    return F.coalesce(F.sum(F.when(F.col("kind") == kind, F.col("count"))), F.lit(0)).alias(kind)
