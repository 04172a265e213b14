"""Worker deliveries, split into those whose counts are final and the others.

A worker is busy while it has at least one delivery. A delivery shortens the busy time of all that began after it and
overlap it, so deliveries become final in the order in which they began: up to the first one of the worker that is in
flight, and not within the last minute, because a receive may be committed late. Final deliveries that reach beyond that
point leave one row with the end of the busy time that is already counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from penstock.spark.computed_columns import HELD_LEASES, conform
from penstock.spark.workers import loads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A receive that is committed later than this makes the next run recompute everything.
LATE_MICROS = 60_000_000


class WorkerDeliveries(NamedTuple):
    """Final deliveries, and the others with the busy time that is already counted."""

    final: DataFrame
    waiting: DataFrame
    in_flight: DataFrame

    def final_loads(self, width_seconds: float) -> DataFrame:
        return loads(self.final, width_seconds)

    def other_loads(self, width_seconds: float) -> DataFrame:
        return loads(self.waiting.unionByName(self.in_flight), width_seconds)


def split_deliveries(delivered: DataFrame, waiting: DataFrame, after_window: int, upto_at: int) -> WorkerDeliveries:
    """Split the deliveries of messages that are live or ended after a window, and those that were not final then."""
    found = delivered.withColumn("is_counted", F.lit(False))
    in_flight = found.where("ended_at is null")
    ended = found.where(F.col("ended_window") > after_window).transform(conform(HELD_LEASES))
    limit = F.timestamp_micros(F.lit(upto_at - LATE_MICROS))
    oldest = in_flight.groupBy("worker").agg(F.min("leased_at").alias("oldest"))
    known = (
        waiting.unionByName(ended)
        .join(oldest, "worker", "left")
        .withColumn("limit", F.least(F.coalesce("oldest", limit), limit))
    )
    is_final = F.col("is_counted") | (F.col("leased_at") < F.col("limit"))
    final = known.where(is_final)
    busy = (
        final.groupBy("worker", F.col("limit").alias("leased_at"))
        .agg(F.max("ended_at").alias("ended_at"))
        .where(F.col("ended_at") > F.col("leased_at"))
        .withColumns({"ended_by": F.lit(None), "is_counted": F.lit(True)})
    )
    return WorkerDeliveries(
        final.transform(conform(HELD_LEASES)),
        known.where(~is_final).transform(conform(HELD_LEASES)).unionByName(busy.transform(conform(HELD_LEASES))),
        in_flight.transform(conform(HELD_LEASES)),
    )
