"""Workers: utilisation per worker and time bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from penstock.domain.lifecycle import Event
from penstock.spark.audit import MICROSECONDS, count_when
from penstock.spark.computed_columns import WORKERS, conform
from penstock.spark.metrics import MINUTE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEY = ("worker", "starts_at")
LOADS = ("received", "succeeded", "failed", "busy_micros", "held_micros")


def utilisation(leases: DataFrame, width_seconds: float = MINUTE) -> DataFrame:
    """From `leases`: how long each worker was busy, and with how many deliveries."""
    return shares(loads(leases.withColumn("is_counted", F.lit(False)), width_seconds), width_seconds)


def loads(leases: DataFrame, width_seconds: float = MINUTE) -> DataFrame:
    """The load of each worker in each bucket, as additive numbers.

    Overlapping deliveries count as busy time once: each adds only the time after all earlier ones had ended. This is
    computed within one worker and bucket, so the work is distributed. Rows with `is_counted` only shorten the others.
    """
    order = ("starts", F.desc("is_counted"), "ends")
    earlier = Window.partitionBy(*KEY).orderBy(*order).rowsBetween(Window.unboundedPreceding, -1)
    begins = F.greatest("starts", F.max("ends").over(earlier))
    return (
        _pieces(leases, width_seconds)
        .withColumn("own", F.greatest(F.lit(0), F.col("ends") - begins))
        .where(~F.col("is_counted"))
        .groupBy(*KEY)
        .agg(
            count_when(F.col("is_first")).alias("received"),
            count_when(F.col("is_first") & _is_ended_by(Event.ACK)).alias("succeeded"),
            count_when(F.col("is_first") & _is_ended_by(Event.NAK, Event.REJECT, Event.LEASE_END)).alias("failed"),
            F.coalesce(F.sum("own"), F.lit(0)).alias("busy_micros"),
            F.coalesce(F.sum(F.col("ends") - F.col("starts")), F.lit(0)).alias("held_micros"),
        )
    )


def shares(loads: DataFrame, width_seconds: float) -> DataFrame:
    width = F.lit(width_seconds * MICROSECONDS)
    return (
        loads.withColumn("busy_seconds", F.col("busy_micros") / F.lit(float(MICROSECONDS)))
        .withColumn("utilisation", F.col("busy_micros") / width)
        .withColumn("in_hand", F.col("held_micros") / width)
        .transform(conform(WORKERS))
    )


def _pieces(leases: DataFrame, width_seconds: float) -> DataFrame:
    """Deliveries cut at bucket boundaries; each is counted with its first piece. One in flight has no length yet."""
    width = F.lit(round(width_seconds * MICROSECONDS))
    # The clock may have been set back in between.
    starts, ends = F.unix_micros("leased_at"), F.unix_micros(F.greatest("ended_at", "leased_at"))
    first, last = starts - F.pmod(starts, width), ends - F.pmod(ends, width)
    piece = F.col("piece")
    return leases.withColumn("piece", F.explode(F.sequence(first, last, width))).select(
        *("worker", "ended_by", "is_counted"),
        F.timestamp_micros(piece).alias("starts_at"),
        F.greatest(starts, piece).alias("starts"),
        F.least(ends, piece + width).alias("ends"),
        (piece == first).alias("is_first"),
    )


def _is_ended_by(*events: Event) -> Column:
    return F.col("ended_by").isin(*(str(event) for event in events))
