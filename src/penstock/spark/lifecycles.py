"""Lifecycles: one row per message and group. Leases: one row per delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from penstock.domain.lifecycle import Event
from penstock.spark.schemas import LEASES, LIFECYCLES, OUTCOMES, conform
from penstock.spark.trails import (
    MICROSECONDS,
    SETTLING,
    by_group,
    count_when,
    has_ended,
    in_order,
    is_event,
    seconds_between,
    sum_of_times,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def lifecycles(audit: DataFrame) -> DataFrame:
    """What became of each message in each group of its queue.

    One pass and one exchange: every column is a sum, a minimum or the value of the last entry, so that tasks add up
    their own part first.
    """
    at = F.col("at")
    received, settled = is_event(Event.RECEIVE), is_event(*SETTLING)
    late = is_event(Event.EXPIRE, Event.DEADLINE)
    received_sum, received_micros = sum_of_times(F.when(received, at))
    settled_sum, settled_micros = sum_of_times(F.when(settled, at))
    ready = (F.col("state") == "ready") & is_event(Event.SEND, Event.DUE, Event.BATCH_START)
    found = by_group(audit).groupBy("queue", "id", "group").agg(
        F.max(F.struct("at", "entry", "state", "attempt")).alias("last"),
        F.min(F.when(is_event(Event.SEND), at)).alias("sent_at"),
        F.min(F.when(ready, at)).alias("ready_at"),
        F.min(F.when(received, at)).alias("first_received_at"),
        F.max(F.when(received, at)).alias("last_received_at"),
        F.max(F.when(late, at)).alias("late_at"),
        F.max_by("reason", F.when(F.col("reason").isNotNull(), in_order())).alias("last_reason"),
        F.sort_array(F.collect_set(F.when(received, F.col("by")))).alias("workers"),
        count_when(received).alias("deliveries"),
        count_when(settled).alias("settled"),
        received_sum.alias("received_sum"),
        received_micros.alias("received_micros"),
        settled_sum.alias("settled_sum"),
        settled_micros.alias("settled_micros"),
    )  # fmt: skip
    return (
        found.withColumn("state", F.col("last.state"))
        .withColumn("attempts", F.col("last.attempt"))
        .withColumn("finished_at", F.when(has_ended(), F.col("last.at")))
        .withColumn("waited_seconds", seconds_between(F.col("ready_at"), F.col("first_received_at")))
        .withColumn("total_seconds", seconds_between(F.col("sent_at"), F.col("finished_at")))
        .withColumn("processed_seconds", _processed())
        .transform(conform(LIFECYCLES))
    )


def _processed() -> Column:
    """The ends of all deliveries minus their beginnings. One that was not settled ended with the message's own time,
    or is still in flight and does not count yet."""
    zero = F.lit(0)
    whole = F.coalesce(F.col("settled_sum"), zero) - F.coalesce(F.col("received_sum"), zero)
    micros = F.coalesce(F.col("settled_micros"), zero) - F.coalesce(F.col("received_micros"), zero)
    late = F.when(F.col("late_at") >= F.col("last_received_at"), F.col("late_at"))
    unsettled = F.when(
        F.col("deliveries") > F.col("settled"), F.unix_micros(F.coalesce(late, F.col("last_received_at")))
    ).otherwise(zero)
    seconds = (whole * F.lit(MICROSECONDS) + micros + unsettled) / F.lit(float(MICROSECONDS))
    return F.when(F.col("deliveries") > 0, seconds)


def leases(audit: DataFrame) -> DataFrame:
    """Each delivery with the entry that ended it: the next one of the same message in the same group."""
    following = Window.partitionBy("queue", "id", "group").orderBy("at", "entry")
    return (
        audit.where(F.col("group").isNotNull())
        .withColumn("ended_at", F.lead("at").over(following))
        .withColumn("ended_by", F.lead("event").over(following))
        .where(is_event(Event.RECEIVE))
        .withColumn("seconds", seconds_between(F.col("at"), F.col("ended_at")))
        .withColumnsRenamed({"by": "worker", "at": "leased_at"})
        .transform(conform(LEASES))
    )


def outcomes(lifecycles: DataFrame) -> DataFrame:
    """How messages ended, by queue and group; those that have not ended are counted under their state."""
    return (
        lifecycles.groupBy("queue", "group", F.col("state").alias("outcome"))
        .agg(F.count("*").alias("messages"))
        .transform(conform(OUTCOMES))
    )
