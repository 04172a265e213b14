"""Failures: reasons grouped by fingerprint, and poison messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.domain.fingerprints import EXAMINED_CHARACTERS, KEPT_CHARACTERS, NO_REASON, RULES
from penstock.domain.lifecycle import Event
from penstock.spark.audit import FAILING, count_when, has_ended, is_event, state_name, state_number
from penstock.spark.computed_columns import FAILURES, POISON, conform

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

# Events without a reason of their own.
BY_ITSELF = {
    Event.LEASE_END: "the lease ended: its consumer vanished or was too slow",
    Event.EXPIRE: "its time to live was over",
    Event.DEADLINE: "its deadline had passed",
}
POISON_FAILURES = 3


def pattern(reason: Column) -> Column:
    """The reason with its variable parts blanked out: `domain.fingerprints.fingerprint` as a column expression, so
    that a failure has the same name here and in lists of dead letters."""
    text = F.substring(reason, 1, EXAMINED_CHARACTERS)
    for search, stand_in in RULES:
        text = F.regexp_replace(text, search, stand_in)
    text = F.substring(F.trim(text), 1, KEPT_CHARACTERS)
    return F.when(text == "", F.lit(NO_REASON)).otherwise(text)


def failing(audit: DataFrame) -> DataFrame:
    """One row for each message, group and pattern that failed. Persist it to compute both tables from it.

    A message mostly repeats its reason, so reasons are counted first and the rules applied once to each.
    """
    by_itself = F.create_map(*(F.lit(str(word)) for pair in BY_ITSELF.items() for word in pair))[F.col("event")]
    reasons = (
        audit.where(is_event(*FAILING))
        .withColumn("reason", F.coalesce(by_itself, F.col("reason"), F.lit(NO_REASON)))
        .groupBy("queue", "group", "id", "reason")
        .agg(
            F.min("entry").alias("first"),
            F.max("entry").alias("last"),
            F.max_by(state_number(F.col("state")), "entry").alias("state"),
            F.min("at").alias("first_at"),
            F.max("at").alias("last_at"),
            F.count("*").alias("times"),
            count_when(has_ended()).alias("ended"),
        )
    )
    return reasons.groupBy("queue", "group", "id", pattern(F.col("reason")).alias("pattern")).agg(
        F.sum("times").alias("times"),
        F.least(F.lit(1), F.sum("ended")).alias("ended"),
        state_name(F.max_by("state", "last")).alias("state"),
        F.min_by("reason", "first").alias("example"),
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
    )


def failures(failing: DataFrame) -> DataFrame:
    """How often each pattern occurred, for how many messages, and how often for one message."""
    return kinds(by_times(failing))


def by_times(failing: DataFrame) -> DataFrame:
    """How many messages failed how often with the same pattern."""
    return failing.groupBy("queue", "group", "pattern", "times").agg(
        _first_example(),
        F.count("*").alias("repeated"),
        F.sum("ended").alias("dead"),
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
    )


def kinds(by_times: DataFrame) -> DataFrame:
    worst = F.max_by("repeated", "times")
    return (
        by_times.groupBy("queue", "group", "pattern")
        .agg(
            _first_example(),
            F.sum(F.col("times") * F.col("repeated")).alias("failures"),
            F.sum("repeated").alias("messages"),
            F.sum("dead").alias("dead"),
            F.max("times").alias("most_failures"),
            worst.alias("repeated"),
            F.min("first_at").alias("first_at"),
            F.max("last_at").alias("last_at"),
        )
        .withColumn("fingerprint", _fingerprint())
        .transform(conform(FAILURES))
    )


def poison(failing: DataFrame, at_least: int = POISON_FAILURES, schema: StructType = POISON) -> DataFrame:
    """Messages that failed at least this often with the same pattern in one group."""
    return (
        failing.where(F.col("times") >= at_least)
        .withColumnRenamed("times", "failures")
        .withColumn("fingerprint", _fingerprint())
        .transform(conform(schema))
    )


def _first_example() -> Column:
    """The earliest example; ties are broken by its text."""
    return F.min(F.struct("first_at", "example"))["example"].alias("example")


def _fingerprint() -> Column:
    return F.substring(F.sha2("pattern", 256), 1, 12)
