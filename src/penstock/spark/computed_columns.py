"""The columns of the computed tables. Each table is a function from frames to a frame that ends with `conform`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TEXT, WHOLE, NUMBER, TIME = StringType(), LongType(), DoubleType(), TimestampType()


def _columns(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


# One row per message and group. Times are null for what has not happened.
LIFECYCLES = _columns(
    queue=TEXT,
    id=TEXT,
    group=TEXT,  # null when no group has ever read the queue
    position=WHOLE,
    state=TEXT,  # the last state: an outcome when the message has ended in the group
    sent_at=TIME,
    ready_at=TIME,
    first_received_at=TIME,
    finished_at=TIME,
    deliveries=WHOLE,
    attempts=WHOLE,  # of the last delivery: a redrive and a reschedule start again at 1
    waited_seconds=NUMBER,  # from being ready to the first delivery
    processed_seconds=NUMBER,  # under lease, all deliveries together
    total_seconds=NUMBER,  # from send to end
    workers=ArrayType(StringType()),
    last_reason=TEXT,
    # when it was live: from its send, and from each redrive or seek, to the next end
    spells=ArrayType(_columns(begins_at=TIME, ends_at=TIME, outcome=TEXT)),
)

# One row per delivery.
LEASES = _columns(
    queue=TEXT,
    group=TEXT,
    id=TEXT,
    worker=TEXT,
    attempt=WHOLE,
    leased_at=TIME,
    ended_at=TIME,  # null while it is in flight
    ended_by=TEXT,  # the event
    seconds=NUMBER,
)

# One row per queue, group and time bucket.
METRICS = _columns(
    queue=TEXT,
    group=TEXT,
    starts_at=TIME,
    sent=WHOLE,
    received=WHOLE,
    settled=WHOLE,  # deliveries that ended
    retried=WHOLE,  # of those, the ones to be retried
    finished=WHOLE,
    succeeded=WHOLE,
    dead=WHOLE,
    failure_rate=NUMBER,  # dead of finished; null when nothing finished
    waited_p50=NUMBER,
    waited_p95=NUMBER,
    waited_p99=NUMBER,
    processed_p50=NUMBER,
    processed_p95=NUMBER,
    processed_p99=NUMBER,
    backlog=WHOLE,  # live messages at the end of the bucket
    oldest_age_seconds=NUMBER,  # of the oldest of those; null without a backlog
)

# One row per queue and group.
READERS = _columns(
    queue=TEXT,
    group=TEXT,
    sent=WHOLE,
    deliveries=WHOLE,
    waited_p50=NUMBER,
    waited_p95=NUMBER,
    waited_p99=NUMBER,
    processed_p50=NUMBER,
    processed_p95=NUMBER,
    processed_p99=NUMBER,
)

BACKLOG = _columns(queue=TEXT, group=TEXT, starts_at=TIME, backlog=WHOLE, oldest_age_seconds=NUMBER)

# One row per queue, group and outcome.
OUTCOMES = _columns(queue=TEXT, group=TEXT, outcome=TEXT, messages=WHOLE)

# One row per queue, group and kind of failure.
FAILURES = _columns(
    queue=TEXT,
    group=TEXT,
    fingerprint=TEXT,
    pattern=TEXT,  # the reason with numbers, ids and quoted texts blanked out
    example=TEXT,
    failures=WHOLE,
    messages=WHOLE,
    dead=WHOLE,  # messages that ended with it
    most_failures=WHOLE,  # of one message
    repeated=WHOLE,  # number of messages with that many failures
    first_at=TIME,
    last_at=TIME,
)

# One row per message that failed repeatedly with the same error.
POISON = _columns(
    queue=TEXT, group=TEXT, id=TEXT, fingerprint=TEXT, pattern=TEXT, failures=WHOLE, state=TEXT, last_at=TIME
)

# One row per worker and time bucket.
WORKERS = _columns(
    worker=TEXT,
    starts_at=TIME,
    received=WHOLE,
    succeeded=WHOLE,
    failed=WHOLE,
    busy_seconds=NUMBER,  # with at least one delivery in hand
    utilisation=NUMBER,  # of the bucket
    in_hand=NUMBER,  # deliveries in hand, on average
)


# Tables with a row per message are partitioned by the day on which it ended; READ are the tables of the report.
DATED = {"lifecycles": LIFECYCLES, "poison": POISON}
READ = {
    "readers": READERS,
    "outcomes": OUTCOMES,
    "metrics": METRICS,
    "failures": FAILURES,
    "poison": POISON,
    "workers": WORKERS,
}

# Deliveries whose counts are not final, and the busy time that is already counted (`is_counted`).
HELD_LEASES = StructType(
    [
        *_columns(worker=TEXT, leased_at=TIME, ended_at=TIME, ended_by=TEXT),
        StructField("is_counted", BooleanType()),
    ]
)

# Additive counts. Rows with the same key (all but the last five columns) are added up.
COUNTS = _columns(
    kind=TEXT,
    queue=TEXT,
    group=TEXT,
    label=TEXT,
    starts_at=TIME,
    ends_at=TIME,
    value=NUMBER,
    count=WHOLE,
    also=WHOLE,  # a second sum
    first_at=TIME,  # minimum
    last_at=TIME,  # maximum
    example=TEXT,  # of the smallest first_at
)


def dated(schema: StructType) -> StructType:
    """With the day on which the message ended; null while it is live."""
    return StructType([*schema, StructField("day", TEXT)])


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """A frame without rows that the optimizer knows to be empty, so that plans become smaller."""
    nulls = (f"cast(null as {field.dataType.simpleString()}) as `{field.name}`" for field in schema)
    return spark.range(0).where("false").selectExpr(*nulls)


def conform(schema: StructType) -> Callable[[DataFrame], DataFrame]:
    """Select the columns of a schema, in order and with their types."""
    # As text, which is one call of Java: column by column they would be thousands in an update of the tables.
    columns = [f"cast(`{field.name}` as {field.dataType.simpleString()}) as `{field.name}`" for field in schema]

    def select(frame: DataFrame) -> DataFrame:
        return frame.selectExpr(*columns)

    return select
