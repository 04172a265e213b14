"""A history of any size, made by Spark itself, whose answers follow from arithmetic.

Message n is sent n ticks after the beginning to queue n % QUEUES. What becomes of it depends on n % 20: one of twenty
fails every attempt, one fails once, one is rejected, one expires unread; all others succeed at once. It waits and is
worked on for times that repeat every 100 messages.
"""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

BEGINS = datetime(2026, 3, 1, tzinfo=UTC)
QUEUES = 4
WORKERS = 8
ATTEMPTS = 8
FAILS_ALWAYS, FAILS_ONCE, REJECTED, EXPIRES, PERIOD = 7, 3, 11, 13, 20
SUCCEEDS = -1
# Entries of one period: send, receive, settle for most; the others as below.
ENTRIES_PER_PERIOD = 16 * 3 + (1 + 2 * ATTEMPTS) + 5 + 3 + 2
MILLISECOND = 1000
# How often a message has waited and been worked on by then, the event, the state after it, and the attempt.
Step = tuple[int, int, str, str, int]


def messages_for(rows: int) -> int:
    """How many messages have about so many entries: whole periods."""
    return max(1, rows // ENTRIES_PER_PERIOD) * PERIOD


def waited_milliseconds(number: int) -> int:
    return 10 + number % 100


def processed_milliseconds(number: int) -> int:
    """Of each attempt."""
    return 5 + number % 50


def history(spark: SparkSession, messages: int, tick_milliseconds: int = 2, partitions: int | None = None) -> DataFrame:
    """The audit of a number of messages, with the columns of a lake."""
    begins = int(BEGINS.timestamp() * 1_000_000)
    number = F.col("id")
    fate = number % PERIOD
    told = (
        spark.range(0, messages, 1, partitions)
        .select(
            number.alias("n"),
            F.when(fate.isin(*_FATES), fate).otherwise(F.lit(SUCCEEDS)).alias("fate"),
            (F.lit(begins) + number * F.lit(tick_milliseconds * MILLISECOND)).alias("sent"),
            ((F.lit(10) + number % 100) * MILLISECOND).alias("waited"),
            ((F.lit(5) + number % 50) * MILLISECOND).alias("worked"),
        )
        .join(F.broadcast(_steps(spark)), "fate")
    )
    event, attempt = F.col("event"), F.col("attempt")
    reason = F.when(event == "nak", F.concat(F.lit("warehouse "), F.col("n"), F.lit(" does not answer"))).when(
        event == "reject", F.lit("the card was declined")
    )
    worker = F.concat(F.lit("worker-"), F.pmod(F.col("n") + attempt, F.lit(WORKERS)))
    return told.select(
        (F.col("n") * 100 + F.col("place")).alias("entry"),
        (F.col("n") + 1).alias("position"),
        F.concat(F.lpad(F.lower(F.hex("n")), 8, "0"), F.lit("-0000-7000-8000-000000000000")).alias("id"),
        F.concat(F.lit("queue-"), F.col("n") % QUEUES).alias("queue"),
        F.timestamp_micros("sent").alias("created_at"),
        F.timestamp_micros(F.expr("sent + waits * waited + works * worked")).alias("at"),
        "event",
        "state",
        F.when(event.isin("send", "expire"), F.lit("system")).otherwise(worker).alias("by"),
        F.when(event != "send", F.lit("default")).alias("group"),
        reason.alias("reason"),
        "attempt",
        F.lit(None).cast("long").alias("token"),
    )


def _steps(spark: SparkSession) -> DataFrame:
    """What happens to a message of each fate, a row for each step: after it has waited and been worked on so often."""
    rows = [(fate, place, *step) for fate, steps in _FATES.items() for place, step in enumerate(steps)]
    return spark.createDataFrame(
        rows, "fate long, place int, waits int, works int, event string, state string, attempt int"
    )


def _attempt(attempt: int, event: str, state: str) -> tuple[Step, Step]:
    return (attempt, attempt - 1, "receive", "leased", attempt), (attempt, attempt, event, state, attempt)


_SENT: Step = (0, 0, "send", "ready", 0)
_RETRIES = [step for attempt in range(1, ATTEMPTS) for step in _attempt(attempt, "nak", "ready")]
_FATES: dict[int, list[Step]] = {
    SUCCEEDS: [_SENT, *_attempt(1, "ack", "succeeded")],
    FAILS_ALWAYS: [_SENT, *_RETRIES, *_attempt(ATTEMPTS, "nak", "failed")],
    FAILS_ONCE: [_SENT, *_attempt(1, "nak", "ready"), *_attempt(2, "ack", "succeeded")],
    REJECTED: [_SENT, *_attempt(1, "reject", "rejected")],
    EXPIRES: [_SENT, (1, 0, "expire", "expired", 0)],
}
