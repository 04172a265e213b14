"""Metrics: what happened per queue, group and stretch of time, a minute unless said otherwise.

Flows are counted first, where the entries are; all that follows works on as many rows as there are stretches.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from penstock.domain.lifecycle import Event
from penstock.spark.schemas import BACKLOG, METRICS, conform
from penstock.spark.trails import (
    by_group,
    count_when,
    has_ended,
    interval,
    is_event,
    is_revival,
    seconds_between,
    stretch,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MINUTE = 60
KEY = ("queue", "group", "starts_at")
COUNTS = ("sent", "received", "retried", "succeeded", "dead", "revived")
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
TIMED = ("waited", "processed")
# Exact up to this many values in a stretch, and within one part in so many beyond.
ACCURACY = 1000
# The age of the oldest message is exact to this part of a stretch.
COHORTS = 60


def flows(audit: DataFrame, width_seconds: float = MINUTE) -> DataFrame:
    """How many messages went which way in each stretch."""
    succeeded = F.col("state") == "succeeded"
    return (
        by_group(audit)
        .withColumn("starts_at", stretch(F.col("at"), width_seconds))
        .groupBy(*KEY)
        .agg(
            count_when(is_event(Event.SEND)).alias("sent"),
            count_when(is_event(Event.RECEIVE)).alias("received"),
            count_when(is_event(Event.NAK, Event.LEASE_END) & ~has_ended()).alias("retried"),
            count_when(succeeded).alias("succeeded"),
            count_when(has_ended() & ~succeeded).alias("dead"),
            count_when(is_revival()).alias("revived"),
        )
    )


def metrics(flows: DataFrame, lifecycles: DataFrame, width_seconds: float = MINUTE) -> DataFrame:
    """Rates, percentiles and backlog of each stretch, from `flows` and `lifecycles` of the same audit.

    Waiting counts where a message was first received, processing where it ended.
    """
    parts = [
        flows,
        _percentiles(lifecycles, width_seconds),
        backlog(flows, lifecycles, width_seconds),
    ]
    united = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
    values = [column for column in united.columns if column not in KEY]
    finished = F.col("succeeded") + F.col("dead")
    return (
        united.groupBy(*KEY)
        .agg(*(F.max(column).alias(column) for column in values))
        .fillna(0, subset=[*COUNTS, "backlog"])
        .withColumn("finished", finished)
        .withColumn("failure_rate", F.when(finished > 0, F.col("dead") / finished))
        .transform(conform(METRICS))
    )


def _percentiles(lifecycles: DataFrame, width_seconds: float) -> DataFrame:
    """Each life counts at two times, in one pass."""
    nothing = F.lit(None).cast("double")
    received = (F.col("first_received_at"), F.col("waited_seconds"), nothing)
    finished = (F.col("finished_at"), nothing, F.col("processed_seconds"))
    found = (
        lifecycles.select("queue", "group", F.stack(F.lit(2), *received, *finished).alias("at", *TIMED))
        .where(F.col("at").isNotNull() & F.coalesce(*TIMED).isNotNull())
        .groupBy("queue", "group", stretch(F.col("at"), width_seconds).alias("starts_at"))
        .agg(*(F.percentile_approx(what, list(PERCENTILES.values()), ACCURACY).alias(what) for what in TIMED))
    )
    percentiles = (
        F.col(what)[place].alias(f"{what}_{name}") for what in TIMED for place, name in enumerate(PERCENTILES)
    )
    return found.select(*KEY, *percentiles)


def backlog(flows: DataFrame, lifecycles: DataFrame, width_seconds: float = MINUTE) -> DataFrame:
    """What was sent and had not ended when each stretch ended, and how old the oldest of it was.

    Every stretch has a row from the first to the last that anything happened in, by queue and group.
    """
    upto = Window.partitionBy("queue", "group").orderBy("starts_at").rowsBetween(Window.unboundedPreceding, 0)
    change = F.col("sent") + F.col("revived") - F.col("succeeded") - F.col("dead")
    counted = _filled(flows, width_seconds).withColumn("change", F.sum(change).over(upto))
    oldest = _oldest(lifecycles, _last(flows), width_seconds)
    ends_at = F.col("starts_at") + interval(width_seconds)
    return (
        counted.alias("counted")
        .join(oldest.alias("oldest"), _same("counted", "oldest", *KEY), "left")
        .join(F.broadcast(_older(lifecycles)).alias("older"), _same("counted", "older", "queue", "group"), "left")
        .withColumn("backlog", F.col("change") + F.coalesce("older.messages", F.lit(0)))
        .select(*(f"counted.{name}" for name in KEY), "backlog", "oldest_sent_at")
        .withColumn(
            "oldest_age_seconds",
            F.when(F.col("backlog") > 0, seconds_between(F.col("oldest_sent_at"), ends_at)),
        )
        .transform(conform(BACKLOG))
    )


def _filled(flows: DataFrame, width_seconds: float) -> DataFrame:
    """With a row of zeros where nothing happened, up to the last stretch of all queues."""
    spans = flows.groupBy("queue", "group").agg(F.min("starts_at").alias("first")).crossJoin(_last(flows))
    step = interval(width_seconds)
    empty = spans.select("queue", "group", F.explode(F.sequence("first", "last", step)).alias("starts_at"))
    return (
        empty.unionByName(flows, allowMissingColumns=True)
        .groupBy(*KEY)
        .agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in COUNTS))
    )


def _last(flows: DataFrame) -> DataFrame:
    """The last stretch in which anything happened: one row, for every task."""
    return F.broadcast(flows.agg(F.max("starts_at").alias("last")))


def _oldest(lifecycles: DataFrame, last: DataFrame, width_seconds: float) -> DataFrame:
    """For each stretch, when the oldest message was sent that had not ended at its end.

    Messages sent at about the same time are one cohort, which lives as long as the last of them. A cohort that ends
    before an older one is never the oldest; the others take turns, so each stretch is looked at once.
    """
    cohort_seconds = min(width_seconds, max(1.0, width_seconds / COHORTS))
    cohorts = (
        lifecycles.where(F.col("sent_at").isNotNull())
        .withColumn("cohort", stretch(F.col("sent_at"), cohort_seconds))
        .withColumn("until", F.coalesce(stretch(F.col("finished_at"), width_seconds), _never()))
        .groupBy("queue", "group", "cohort")
        # Of those that live longest the oldest: the greatest end, and then the least time.
        .agg(F.max(F.struct("until", -F.unix_micros("sent_at"))).alias("longest"))
        .select(
            *("queue", "group", "cohort", "longest.until"),
            F.timestamp_micros(-F.col("longest.col2")).alias("oldest_sent_at"),
        )
    )
    older = Window.partitionBy("queue", "group").orderBy("cohort").rowsBetween(Window.unboundedPreceding, -1)
    step = interval(width_seconds)
    turns = (
        cohorts.withColumn("after", F.max("until").over(older))
        .crossJoin(last)
        .withColumn("first", F.greatest(stretch(F.col("cohort"), width_seconds), F.col("after")))
        .withColumn("final", F.least(F.col("until") - step, F.col("last")))
        .where(F.col("first") <= F.col("final"))
    )
    return turns.select(
        "queue", "group", "oldest_sent_at", F.explode(F.sequence("first", "final", step)).alias("starts_at")
    )


def _older(lifecycles: DataFrame) -> DataFrame:
    """Messages whose send is not in the history: they were there when it begins."""
    return lifecycles.where(F.col("sent_at").isNull()).groupBy("queue", "group").agg(F.count("*").alias("messages"))


def _same(one: str, other: str, *columns: str) -> Column:
    """A group of None is a group like any other."""
    pairs = (F.col(f"{one}.{name}").eqNullSafe(F.col(f"{other}.{name}")) for name in columns)
    return reduce(lambda first, second: first & second, pairs)


def _never() -> Column:
    return F.lit("9999-01-01 00:00:00").cast("timestamp")
