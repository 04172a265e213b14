"""The columns of every table that the pipeline computes: explicit, so that a plan which drifts fails at once.

A table is a function from frames to a frame; the last thing each does is `conform`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TEXT, WHOLE, NUMBER, TIME = StringType(), LongType(), DoubleType(), TimestampType()


def _columns(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


# One row per message and group. Times are None for what has not happened (yet).
LIFECYCLES = _columns(
    queue=TEXT,
    id=TEXT,
    group=TEXT,  # None when no group has ever read the queue
    state=TEXT,  # the last one: an outcome when the message has ended in the group
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
    ended_at=TIME,  # None while it is in flight
    ended_by=TEXT,  # the event
    seconds=NUMBER,
)

# One row per queue, group and stretch of time.
METRICS = _columns(
    queue=TEXT,
    group=TEXT,
    starts_at=TIME,
    sent=WHOLE,
    received=WHOLE,
    settled=WHOLE,  # deliveries that ended
    retried=WHOLE,  # of those the ones that are tried again
    finished=WHOLE,
    succeeded=WHOLE,
    dead=WHOLE,
    failure_rate=NUMBER,  # dead of finished; None when nothing finished
    waited_p50=NUMBER,
    waited_p95=NUMBER,
    waited_p99=NUMBER,
    processed_p50=NUMBER,
    processed_p95=NUMBER,
    processed_p99=NUMBER,
    backlog=WHOLE,  # sent and not ended, when the stretch ends
    oldest_age_seconds=NUMBER,  # of those the oldest; None without a backlog
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
    repeated=WHOLE,  # messages that failed so often
    first_at=TIME,
    last_at=TIME,
)

# One row per message that failed again and again with the same error.
POISON = _columns(
    queue=TEXT, group=TEXT, id=TEXT, fingerprint=TEXT, pattern=TEXT, failures=WHOLE, state=TEXT, last_at=TIME
)

# One row per worker and stretch of time.
WORKERS = _columns(
    worker=TEXT,
    starts_at=TIME,
    received=WHOLE,
    succeeded=WHOLE,
    failed=WHOLE,
    busy_seconds=NUMBER,  # with at least one delivery in hand
    utilisation=NUMBER,  # of the stretch
    in_hand=NUMBER,  # deliveries in hand, on average
)


def conform(schema: StructType) -> Callable[[DataFrame], DataFrame]:
    """The last step of a table: its columns, in order, with their types."""

    def select(frame: DataFrame) -> DataFrame:
        return frame.select(*(F.col(f"`{field.name}`").cast(field.dataType).alias(field.name) for field in schema))

    return select
