"""What the tables have in common: the audit as every group sees it, kinds of entries, and stretches of time."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.domain.lifecycle import OUTCOMES, Event, State

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# After these a delivery is over. A deadline and an expiry end it as well, if there is one.
SETTLING = (Event.ACK, Event.NAK, Event.REJECT, Event.RESCHEDULE, Event.LEASE_END, Event.RELEASE)
# After these something did not work.
FAILING = (Event.NAK, Event.REJECT, Event.LEASE_END, Event.DEADLINE, Event.EXPIRE)
REVIVING = (Event.REDRIVE, Event.SEEK)
MICROSECONDS = 1_000_000


def by_group(audit: DataFrame) -> DataFrame:
    """The audit with entries that concern all groups (a send, a due time) written once for each group of the queue.

    A group that never received anything has left no entry and is not known here. The groups of all queues are few:
    they go to every task, and the entries themselves are not moved. `is_read` says whether the message is the group's:
    the group did something with it, or had not begun to read behind it (`begun`, where the lake knows).
    """
    groups = (
        audit.where(F.col("group").isNotNull())
        .select("queue", F.col("group").alias("reader"))
        .distinct()
        .groupBy("queue")
        .agg(F.collect_set("reader").alias("readers"))
    )
    readers = F.when(F.col("group").isNotNull(), F.array("group")).otherwise(F.col("readers"))
    begun = F.col("begun")[F.col("group")] if "begun" in audit.columns else F.lit(None)
    return (
        audit.join(F.broadcast(groups), "queue", "left")
        .withColumn("is_own", F.col("group").isNotNull())
        .withColumn("group", F.explode_outer(readers))
        .withColumn("is_read", F.col("is_own") | (F.col("position") > F.coalesce(begun, F.lit(0))))
        .drop("readers", "is_own")
    )


def is_event(*events: Event) -> Column:
    return F.col("event").isin(*(str(event) for event in events))


def has_ended() -> Column:
    return F.col("state").isin(*(str(outcome) for outcome in OUTCOMES))


def state_number(state: Column) -> Column:
    """A state as a number. Where a group keeps numbers and times alone, Spark adds up in place; one text among them and
    it sorts all rows."""
    return F.array_position(_states(), state)


def state_name(number: Column) -> Column:
    return F.get(_states(), number - 1)


def _states() -> Column:
    return F.array(*(F.lit(str(state)) for state in State))


def is_revival() -> Column:
    """A message that had ended is ready again."""
    return is_event(*REVIVING) & (F.col("state") == "ready")


def count_when(condition: Column) -> Column:
    return F.count(F.when(condition, True))


def stretch(time: Column, width_seconds: float) -> Column:
    """When the stretch of time begins in which a time lies."""
    micros = F.unix_micros(time)
    return F.timestamp_micros(micros - F.pmod(micros, F.lit(round(width_seconds * MICROSECONDS))))


def interval(seconds: float) -> Column:
    """As long as a stretch."""
    return F.make_dt_interval(secs=F.lit(Decimal(round(seconds * MICROSECONDS)) / MICROSECONDS))


def seconds_between(start: Column, end: Column) -> Column:
    """Never less than none: the clock may have been set back in between. Null when one of them is."""
    micros = F.unix_micros(end) - F.unix_micros(start)
    return F.when(micros < 0, F.lit(0.0)).otherwise(micros / F.lit(float(MICROSECONDS)))
