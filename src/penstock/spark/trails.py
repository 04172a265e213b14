"""What the tables have in common: the audit as every group sees it, stretches of time, and exact sums of times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.domain.lifecycle import OUTCOMES, Event

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
    they go to every task, and the entries themselves are not moved.
    """
    groups = (
        audit.where(F.col("group").isNotNull())
        .select("queue", F.col("group").alias("reader"))
        .distinct()
        .groupBy("queue")
        .agg(F.collect_set("reader").alias("readers"))
    )
    readers = F.when(F.col("group").isNotNull(), F.array("group")).otherwise(F.col("readers"))
    return (
        audit.join(F.broadcast(groups), "queue", "left").withColumn("group", F.explode_outer(readers)).drop("readers")
    )


def is_event(*events: Event) -> Column:
    return F.col("event").isin(*(str(event) for event in events))


def has_ended() -> Column:
    return F.col("state").isin(*(str(outcome) for outcome in OUTCOMES))


def is_revival() -> Column:
    """A message that had ended is ready again."""
    return is_event(*REVIVING) & (F.col("state") == "ready")


def count_when(condition: Column) -> Column:
    return F.count(F.when(condition, True))


def in_order() -> Column:
    """Sorts the entries of one message."""
    return F.struct("at", "entry")


def stretch(time: Column, width_seconds: int) -> Column:
    """When the stretch of time begins in which a time lies."""
    seconds = F.unix_seconds(time)
    return F.timestamp_seconds(seconds - F.pmod(seconds, F.lit(width_seconds)))


def seconds_between(start: Column, end: Column) -> Column:
    return (F.unix_micros(end) - F.unix_micros(start)) / F.lit(float(MICROSECONDS))


def sum_of_times(time: Column) -> tuple[Column, Column]:
    """Sums of whole seconds and of the microseconds beside them: one number would overflow after some thousand."""
    micros = F.unix_micros(time)
    return F.sum(F.unix_seconds(time)), F.sum(F.pmod(micros, F.lit(MICROSECONDS)))
