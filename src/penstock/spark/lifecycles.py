"""Lifecycles: one row per message and group. Leases: one row per delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from penstock.domain.lifecycle import Event
from penstock.spark.schemas import LEASES, LIFECYCLES, OUTCOMES, conform
from penstock.spark.trails import (
    MICROSECONDS,
    by_group,
    has_ended,
    is_event,
    is_revival,
    seconds_between,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LIFE = ("queue", "id", "group")


def lifecycles(audit: DataFrame) -> DataFrame:
    """What became of each message in each group of its queue.

    The entries of a message are brought together and put in the order in which they happened, which is that of `entry`:
    the clock may have been set back between two of them. Each life is added up as its entries pass by.
    """
    found = (
        _told(by_group(audit))
        .groupBy(*LIFE)
        .agg(
            F.max(F.struct("entry", "at", "state", "attempt")).alias("last"),
            F.max(F.when(F.col("reason").isNotNull(), F.struct("entry", "reason"))).alias("last_with_reason"),
            F.min("sent_at").alias("sent_at"),
            F.min("ready").alias("ready"),
            F.min("received").alias("received"),
            F.sort_array(F.collect_set("worker")).alias("workers"),
            F.count("received").alias("deliveries"),
            F.sum("leased_micros").alias("leased_micros"),
            F.array_sort(F.collect_list("turn")).alias("turns"),
            F.max("is_read").alias("is_read"),
        )
    )
    return (
        found.where("is_read")
        .withColumn("state", F.col("last.state"))
        .withColumn("attempts", F.col("last.attempt"))
        .withColumn("last_reason", F.col("last_with_reason.reason"))
        .withColumn("ready_at", F.col("ready.at"))
        .withColumn("first_received_at", F.col("received.at"))
        .withColumn("finished_at", F.when(has_ended(), F.col("last.at")))
        .withColumn("waited_seconds", seconds_between(F.col("ready_at"), F.col("first_received_at")))
        .withColumn("total_seconds", seconds_between(F.col("sent_at"), F.col("finished_at")))
        .withColumn("processed_seconds", F.col("leased_micros") / F.lit(float(MICROSECONDS)))
        .withColumn("spells", _spells())
        .transform(conform(LIFECYCLES))
    )


def _told(entries: DataFrame) -> DataFrame:
    """What each entry adds to the life of its message: looked at once, before anything is grouped."""
    at, place = F.col("at"), F.struct("entry", "at")
    received = is_event(Event.RECEIVE)
    ready = (F.col("state") == "ready") & is_event(Event.SEND, Event.DUE, Event.BATCH_START)
    following = F.lead("at").over(Window.partitionBy(*LIFE).orderBy("entry"))
    leased = F.coalesce(F.greatest(F.lit(0), F.unix_micros(following) - F.unix_micros(at)), F.lit(0))
    turns = is_event(Event.SEND) | is_revival() | has_ended()
    return entries.select(
        *(*LIFE, "entry", "at", "state", "attempt", "reason", "is_read"),
        F.when(is_event(Event.SEND), at).alias("sent_at"),
        F.when(ready, place).alias("ready"),
        F.when(received, place).alias("received"),
        F.when(received, F.col("by")).alias("worker"),
        # A delivery ends with the next entry of its message; one in flight does not count yet.
        F.when(received, leased).alias("leased_micros"),
        F.when(turns, F.struct("entry", "at", F.when(has_ended(), F.col("state")).alias("outcome"))).alias("turn"),
    )


def _spells() -> Column:
    """When the message was live: from its send to its end, and again from each redrive or seek to the next end. The
    first one has no beginning when the send is not in the history."""
    turns = F.col("turns")
    begins = F.transform(F.filter(turns, lambda turn: turn["outcome"].isNull()), lambda turn: turn["at"])
    unknown = F.array(F.lit(None).cast("timestamp"))
    is_known = F.size(turns) > 0
    is_whole = is_known & F.get(turns, F.lit(0))["outcome"].isNull()
    return F.zip_with(
        F.when(is_whole, begins).otherwise(F.concat(unknown, begins)),
        F.filter(turns, lambda turn: turn["outcome"].isNotNull()),
        lambda begin, end: F.struct(
            begin.alias("begins_at"), end["at"].alias("ends_at"), end["outcome"].alias("outcome")
        ),
    )


def leases(audit: DataFrame) -> DataFrame:
    """Each delivery with the entry that ended it: the next one of the same message in the same group."""
    following = Window.partitionBy(*LIFE).orderBy("entry")
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
