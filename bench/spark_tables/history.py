"""A history of any size, made by Spark itself, whose answers follow from arithmetic.

Message n is sent n ticks after the beginning to queue n % QUEUES. What becomes of it depends on n % 20: one of twenty
fails every attempt, one fails once, one is rejected, one expires unread; all others succeed at once. It waits and is
worked on for times that repeat every 100 messages.
"""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

BEGINS = datetime(2026, 3, 1, tzinfo=UTC)
QUEUES = 4
WORKERS = 8
ATTEMPTS = 8
FAILS_ALWAYS, FAILS_ONCE, REJECTED, EXPIRES, PERIOD = 7, 3, 11, 13, 20
# Entries of one period: send, receive, settle for most; the others as below.
ENTRIES_PER_PERIOD = 16 * 3 + (1 + 2 * ATTEMPTS) + 5 + 3 + 2
MILLISECOND = 1000


def messages_for(rows: int) -> int:
    """How many messages have about so many entries: whole periods."""
    return max(1, rows // ENTRIES_PER_PERIOD) * PERIOD


def waited_milliseconds(number: int) -> int:
    return 10 + number % 100


def processed_milliseconds(number: int) -> int:
    """Of each attempt."""
    return 5 + number % 50


def history(spark: SparkSession, messages: int, tick_milliseconds: int = 2, partitions: int | None = None) -> DataFrame:
    """The audit of so many messages, with the columns that a lake has."""
    begins = int(BEGINS.timestamp() * 1_000_000)
    number = F.col("id")
    told = (
        spark.range(0, messages, 1, partitions)
        .select(
            number.alias("n"),
            (F.lit(begins) + number * F.lit(tick_milliseconds * MILLISECOND)).alias("sent"),
            ((F.lit(10) + number % 100) * MILLISECOND).alias("waits"),
            ((F.lit(5) + number % 50) * MILLISECOND).alias("works"),
        )
        .withColumn("steps", _steps(F.col("n") % PERIOD))
        .select("n", "sent", F.posexplode("steps").alias("place", "step"))
    )
    step = F.col("step")
    reason = F.when(step.event == "nak", F.concat(F.lit("warehouse "), F.col("n"), F.lit(" does not answer"))).when(
        step.event == "reject", F.lit("the card was declined")
    )
    worker = F.concat(F.lit("worker-"), F.pmod(F.col("n") + step.attempt, F.lit(WORKERS)))
    return told.select(
        (F.col("n") * 100 + F.col("place")).alias("entry"),
        (F.col("n") + 1).alias("position"),
        F.format_string("%08x-0000-7000-8000-000000000000", "n").alias("id"),
        F.concat(F.lit("queue-"), F.col("n") % QUEUES).alias("queue"),
        F.timestamp_micros("sent").alias("created_at"),
        F.timestamp_micros(step.at).alias("at"),
        step.event.alias("event"),
        step.state.alias("state"),
        F.when(step.event.isin("send", "expire"), F.lit("system")).otherwise(worker).alias("by"),
        F.when(step.event != "send", F.lit("default")).alias("group"),
        reason.alias("reason"),
        step.attempt.cast("int").alias("attempt"),
        F.lit(None).cast("long").alias("token"),
    )


def _steps(fate: Column) -> Column:
    sent = _step(0, 0, "send", "ready", 0)
    retries = [step for attempt in range(1, ATTEMPTS) for step in _attempt(attempt, "nak", "ready")]
    return (
        F.when(fate == FAILS_ALWAYS, F.array(sent, *retries, *_attempt(ATTEMPTS, "nak", "failed")))
        .when(fate == FAILS_ONCE, F.array(sent, *_attempt(1, "nak", "ready"), *_attempt(2, "ack", "succeeded")))
        .when(fate == REJECTED, F.array(sent, *_attempt(1, "reject", "rejected")))
        .when(fate == EXPIRES, F.array(sent, _step(1, 0, "expire", "expired", 0)))
        .otherwise(F.array(sent, *_attempt(1, "ack", "succeeded")))
    )


def _attempt(attempt: int, event: str, state: str) -> tuple[Column, Column]:
    received = _step(attempt, attempt - 1, "receive", "leased", attempt)
    return received, _step(attempt, attempt, event, state, attempt)


def _step(waits: int, works: int, event: str, state: str, attempt: int) -> Column:
    """After the message has waited and been worked on so often."""
    return F.struct(
        (F.col("sent") + F.lit(waits) * F.col("waits") + F.lit(works) * F.col("works")).alias("at"),
        F.lit(event).alias("event"),
        F.lit(state).alias("state"),
        F.lit(attempt).alias("attempt"),
    )
