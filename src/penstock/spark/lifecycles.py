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
    has_ended,
    is_event,
    seconds_between,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LIFE = ("queue", "id", "group")


def lifecycles(audit: DataFrame) -> DataFrame:
    """What became of each message in each group of its queue.

    The entries of a message are brought together and sorted, so that each life is added up as its entries pass by. A
    hash of all lives would be sorted too, in parts and again as a whole, because texts and sets are kept for each.
    """
    found = (
        _told(by_group(audit))
        .repartition(*LIFE)
        .sortWithinPartitions(*LIFE)
        .groupBy(*LIFE)
        .agg(
            F.max(F.struct("at", "entry", "state", "attempt")).alias("last"),
            F.max(F.when(F.col("reason").isNotNull(), F.struct("at", "entry", "reason"))).alias("last_with_reason"),
            F.min("created_at").alias("created_at"),
            F.min("sent_at").alias("sent_at"),
            F.min("ready_at").alias("ready_at"),
            F.min("received_at").alias("first_received_at"),
            F.max("received_at").alias("last_received_at"),
            F.max("late_at").alias("late_at"),
            F.sort_array(F.collect_set("worker")).alias("workers"),
            F.count("received_at").alias("deliveries"),
            F.count("settled_at").alias("settled"),
            F.sum("leased_micros").alias("leased_micros"),
        )
    )
    return (
        found.withColumn("state", F.col("last.state"))
        .withColumn("attempts", F.col("last.attempt"))
        .withColumn("last_reason", F.col("last_with_reason.reason"))
        .withColumn("finished_at", F.when(has_ended(), F.col("last.at")))
        .withColumn("waited_seconds", seconds_between(F.col("ready_at"), F.col("first_received_at")))
        .withColumn("total_seconds", seconds_between(F.col("sent_at"), F.col("finished_at")))
        .withColumn("processed_seconds", _processed())
        .transform(conform(LIFECYCLES))
    )


def _told(entries: DataFrame) -> DataFrame:
    """What each entry adds to the life of its message: looked at once, before anything is grouped."""
    at = F.col("at")
    received, settled = is_event(Event.RECEIVE), is_event(*SETTLING)
    ready = (F.col("state") == "ready") & is_event(Event.SEND, Event.DUE, Event.BATCH_START)
    age = _age_micros(at)
    return entries.select(
        *(*LIFE, "entry", "at", "state", "attempt", "reason", "created_at"),
        F.when(is_event(Event.SEND), at).alias("sent_at"),
        F.when(ready, at).alias("ready_at"),
        F.when(received, at).alias("received_at"),
        F.when(settled, at).alias("settled_at"),
        F.when(is_event(Event.EXPIRE, Event.DEADLINE), at).alias("late_at"),
        F.when(received, F.col("by")).alias("worker"),
        F.when(settled, age).when(received, -age).alias("leased_micros"),
    )


def _processed() -> Column:
    """The ends of all deliveries minus their beginnings. One that was not settled ended with the message's own time,
    or is still in flight and does not count yet."""
    late = F.when(F.col("late_at") >= F.col("last_received_at"), F.col("late_at"))
    unsettled = F.when(
        F.col("deliveries") > F.col("settled"), _age_micros(F.coalesce(late, F.col("last_received_at")))
    ).otherwise(F.lit(0))
    return F.when(F.col("deliveries") > 0, (F.col("leased_micros") + unsettled) / F.lit(float(MICROSECONDS)))


def _age_micros(time: Column) -> Column:
    """How old the message was. Sums of times since 1970 would overflow after some thousand deliveries."""
    return F.unix_micros(time) - F.unix_micros("created_at")


def leases(audit: DataFrame) -> DataFrame:
    """Each delivery with the entry that ended it: the next one of the same message in the same group."""
    following = Window.partitionBy(*LIFE).orderBy("at", "entry")
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
