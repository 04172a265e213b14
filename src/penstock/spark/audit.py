"""Audit frames: the entries of each group, predicates on entries, and time buckets."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.domain.lifecycle import OUTCOMES, Event, State

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Events that end a delivery. A deadline or an expiry may end one too.
SETTLING = (Event.ACK, Event.NAK, Event.REJECT, Event.RESCHEDULE, Event.LEASE_END, Event.RELEASE)
# Events that record a failure.
FAILING = (Event.NAK, Event.REJECT, Event.LEASE_END, Event.DEADLINE, Event.EXPIRE)
REVIVING = (Event.REDRIVE, Event.SEEK)
MICROSECONDS = 1_000_000


def by_group(audit: DataFrame, readers: DataFrame | None = None) -> DataFrame:
    """Repeat entries that concern all groups (a send, a due time) for each group of the queue.

    Groups are found by their entries, unless `readers` has them, as for part of an audit. They are few, so they are
    broadcast and the entries are not shuffled. `is_read` tells whether the message belongs to the group: the
    group has an entry of it, or it began to read before it (`begun`) and either can still receive it (`passed`: a seek
    leaves no entry on skipped messages) or saw it end.
    """
    groups = readers_of(audit) if readers is None else readers
    joined = audit.join(F.broadcast(groups), "queue", "left")
    names = F.when(F.col("group").isNotNull(), F.array("group")).otherwise(F.col("readers"))
    begun, passed = (
        F.coalesce(F.col(name)[F.col("group")], F.lit(0)) if name in joined.columns else F.lit(0)
        for name in ("begun", "passed")
    )
    is_before = (F.col("position") > begun) & ((F.col("position") > passed) | has_ended())
    return (
        joined.withColumn("is_own", F.col("group").isNotNull())
        .withColumn("group", F.explode_outer(names))
        .withColumn("is_read", F.col("is_own") | is_before)
        .drop("readers", "is_own")
    )


def readers_of(audit: DataFrame) -> DataFrame:
    """The groups of each queue that have an entry."""
    return (
        audit.where(F.col("group").isNotNull())
        .select("queue", "group")
        .distinct()
        .groupBy("queue")
        .agg(F.collect_set("group").alias("readers"))
    )


def is_event(*events: Event) -> Column:
    return F.col("event").isin(*(str(event) for event in events))


def has_ended() -> Column:
    return F.col("state").isin(*(str(outcome) for outcome in OUTCOMES))


def state_number(state: Column) -> Column:
    """A state as a number. Spark aggregates fixed-width values by hash; with a string among them it sorts."""
    return F.array_position(_states(), state)


def state_name(number: Column) -> Column:
    return F.get(_states(), number - 1)


def _states() -> Column:
    return F.array(*(F.lit(str(state)) for state in State))


def is_revival() -> Column:
    """An entry that made an ended message ready again."""
    return is_event(*REVIVING) & (F.col("state") == "ready")


def count_when(condition: Column) -> Column:
    return F.count(F.when(condition, True))


def stretch(time: Column, width_seconds: float) -> Column:
    """The start of the time bucket that contains a time."""
    micros = F.unix_micros(time)
    return F.timestamp_micros(micros - F.pmod(micros, F.lit(round(width_seconds * MICROSECONDS))))


def interval(seconds: float) -> Column:
    """The width of a bucket."""
    return F.make_dt_interval(secs=F.lit(Decimal(round(seconds * MICROSECONDS)) / MICROSECONDS))


def seconds_between(start: Column, end: Column) -> Column:
    """At least 0, because the clock may have been set back. Null when either is."""
    micros = F.unix_micros(end) - F.unix_micros(start)
    return F.when(micros < 0, F.lit(0.0)).otherwise(micros / F.lit(float(MICROSECONDS)))
