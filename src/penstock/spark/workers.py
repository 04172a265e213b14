"""Workers: how busy each was in each stretch of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from penstock.domain.lifecycle import Event
from penstock.spark.metrics import MINUTE
from penstock.spark.schemas import WORKERS, conform
from penstock.spark.trails import MICROSECONDS, count_when, seconds_between

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEY = ("worker", "starts_at")


def utilisation(leases: DataFrame, width_seconds: float = MINUTE) -> DataFrame:
    """From `leases`: how long each worker had something in hand, and how much.

    A worker that takes twenty messages at once is busy once, not twenty times: of each delivery only the time counts
    after all earlier ones had ended. That is looked at within one worker and one stretch, so the work spreads over
    tasks however long the history.
    """
    earlier = Window.partitionBy(*KEY).orderBy("starts", "ends").rowsBetween(Window.unboundedPreceding, -1)
    begins = F.greatest("starts", F.max("ends").over(earlier))
    return (
        _pieces(leases, width_seconds)
        .withColumn("own", F.greatest(F.lit(0.0), seconds_between(begins, F.col("ends"))))
        .groupBy(*KEY)
        .agg(
            count_when(F.col("is_first")).alias("received"),
            count_when(F.col("is_first") & _is_ended_by(Event.ACK)).alias("succeeded"),
            count_when(F.col("is_first") & _is_ended_by(Event.NAK, Event.REJECT, Event.LEASE_END)).alias("failed"),
            F.sum("own").alias("busy_seconds"),
            F.sum(seconds_between(F.col("starts"), F.col("ends"))).alias("held_seconds"),
        )
        .withColumn("utilisation", F.col("busy_seconds") / F.lit(float(width_seconds)))
        .withColumn("in_hand", F.col("held_seconds") / F.lit(float(width_seconds)))
        .transform(conform(WORKERS))
    )


def _pieces(leases: DataFrame, width_seconds: float) -> DataFrame:
    """Deliveries cut where stretches meet; a delivery is counted with its first piece. One that is still in flight has
    no length yet."""
    width = F.lit(round(width_seconds * MICROSECONDS))
    # The clock may have been set back between the two.
    starts, ends = F.unix_micros("leased_at"), F.unix_micros(F.greatest("ended_at", "leased_at"))
    first, last = starts - F.pmod(starts, width), ends - F.pmod(ends, width)
    piece = F.col("piece")
    return leases.withColumn("piece", F.explode(F.sequence(first, last, width))).select(
        "worker",
        "ended_by",
        F.timestamp_micros(piece).alias("starts_at"),
        F.timestamp_micros(F.greatest(starts, piece)).alias("starts"),
        F.timestamp_micros(F.least(ends, piece + width)).alias("ends"),
        (piece == first).alias("is_first"),
    )


def _is_ended_by(*events: Event) -> Column:
    return F.col("ended_by").isin(*(str(event) for event in events))
