"""Lifecycles: one row per message and group. Leases: one row per delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from penstock.domain.lifecycle import Event
from penstock.spark.audit import (
    MICROSECONDS,
    by_group,
    has_ended,
    is_event,
    is_revival,
    seconds_between,
)
from penstock.spark.computed_columns import LEASES, LIFECYCLES, OUTCOMES, conform

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LIFE = ("queue", "id", "group")


def lifecycles(audit: DataFrame) -> DataFrame:
    """The lifecycle of each message in each group of its queue."""
    return lives(audit).where("is_read").transform(conform(LIFECYCLES))


def lives(audit: DataFrame, readers: DataFrame | None = None) -> DataFrame:
    """The same, with messages that do not belong to the group (not `is_read`).

    Entries of a message are ordered by `entry`, not by time, because the clock may have been set back.
    """
    found = (
        _facts(by_group(audit, readers))
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
            F.max("position").alias("position"),
        )
    )
    return (
        found.withColumn("state", F.col("last.state"))
        .withColumn("attempts", F.col("last.attempt"))
        .withColumn("last_reason", F.col("last_with_reason.reason"))
        .withColumn("ready_at", F.col("ready.at"))
        .withColumn("first_received_at", F.col("received.at"))
        .withColumn("finished_at", F.when(has_ended(), F.col("last.at")))
        .withColumn("waited_seconds", seconds_between(F.col("ready_at"), F.col("first_received_at")))
        .withColumn("total_seconds", seconds_between(F.col("sent_at"), F.col("finished_at")))
        .withColumn("processed_seconds", F.col("leased_micros") / F.lit(float(MICROSECONDS)))
        .withColumn("spells", _spells())
        .select(*LIFECYCLES.names, "is_read")
    )


def _facts(entries: DataFrame) -> DataFrame:
    """The contribution of each entry to the lifecycle of its message, computed before grouping."""
    at, place = F.col("at"), F.struct("entry", "at")
    received = is_event(Event.RECEIVE)
    ready = (F.col("state") == "ready") & is_event(Event.SEND, Event.DUE, Event.BATCH_START)
    following = F.lead("at").over(Window.partitionBy(*LIFE).orderBy("entry"))
    leased = F.coalesce(F.greatest(F.lit(0), F.unix_micros(following) - F.unix_micros(at)), F.lit(0))
    turns = is_event(Event.SEND) | is_revival() | has_ended()
    return entries.select(
        *(*LIFE, "position", "entry", "at", "state", "attempt", "reason", "is_read"),
        F.when(is_event(Event.SEND), at).alias("sent_at"),
        F.when(ready, place).alias("ready"),
        F.when(received, place).alias("received"),
        F.when(received, F.col("by")).alias("worker"),
        # A delivery ends with the next entry of its message; one in flight is not counted.
        F.when(received, leased).alias("leased_micros"),
        F.when(turns, F.struct("entry", "at", F.when(has_ended(), F.col("state")).alias("outcome"))).alias("turn"),
    )


def _spells() -> Column:
    """The periods in which the message was live: from its send, and from each redrive or seek, to the next end. The
    first has no beginning when the send is not in the audit."""
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
    """Each delivery with the entry that ended it: the next of the same message and group."""
    return _deliveries(audit, "at").transform(conform(LEASES))


def deliveries(audit: DataFrame) -> DataFrame:
    """Deliveries from the audit of a lake, with the window in which they ended."""
    found = _deliveries(audit, "at", "window")
    return found.select("worker", "leased_at", "ended_at", "ended_by", "ended_window")


def _deliveries(audit: DataFrame, *columns: str) -> DataFrame:
    following = Window.partitionBy(*LIFE).orderBy("entry")
    ended = {f"ended_{name}": F.lead(name).over(following) for name in columns}
    return (
        audit.where(F.col("group").isNotNull())
        .withColumns({**ended, "ended_by": F.lead("event").over(following)})
        .where(is_event(Event.RECEIVE))
        .withColumn("seconds", seconds_between(F.col("at"), F.col("ended_at")))
        .withColumnsRenamed({"by": "worker", "at": "leased_at"})
    )


def outcomes(lifecycles: DataFrame) -> DataFrame:
    """Messages by queue, group and outcome, or by state when they have not ended."""
    return (
        lifecycles.groupBy("queue", "group", F.col("state").alias("outcome"))
        .agg(F.count("*").alias("messages"))
        .transform(conform(OUTCOMES))
    )
