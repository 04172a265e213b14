"""Workers: how busy each was in each stretch of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from penstock.domain.lifecycle import Event
from penstock.spark.metrics import MINUTE
from penstock.spark.schemas import WORKERS, conform
from penstock.spark.trails import count_when, seconds_between, stretch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY = ("worker", "starts_at")


def utilisation(leases: DataFrame, width_seconds: int = MINUTE) -> DataFrame:
    """From `leases`: how long each worker had something in hand, and how much.

    A worker that takes twenty messages at once is busy once, not twenty times: overlapping deliveries are joined
    first. They are joined within one worker and one stretch, so the work spreads over tasks however long the history.
    """
    ended = leases.where(F.col("ended_at").isNotNull())
    earlier = Window.partitionBy(*KEY).orderBy("starts", "ends").rowsBetween(Window.unboundedPreceding, -1)
    begins = F.greatest("starts", F.max("ends").over(earlier))
    pieces = _pieces(ended, width_seconds)
    busy = (
        pieces.withColumn("own", F.greatest(F.lit(0.0), seconds_between(begins, F.col("ends"))))
        .groupBy(*KEY)
        .agg(
            F.sum("own").alias("busy_seconds"),
            F.sum(F.col("deliveries") * seconds_between(F.col("starts"), F.col("ends"))).alias("held_seconds"),
        )
    )
    united = _counts(leases, width_seconds).unionByName(busy, allowMissingColumns=True)
    counts = ("received", "succeeded", "failed")
    return (
        united.groupBy(*KEY)
        .agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in (*counts, "busy_seconds", "held_seconds")))
        .withColumn("utilisation", F.col("busy_seconds") / F.lit(float(width_seconds)))
        .withColumn("in_hand", F.col("held_seconds") / F.lit(float(width_seconds)))
        .transform(conform(WORKERS))
    )


def _pieces(ended: DataFrame, width_seconds: int) -> DataFrame:
    """Deliveries cut where stretches meet; those of one receive that ended together are one piece."""
    step = F.make_dt_interval(secs=F.lit(width_seconds))
    together = ended.groupBy("worker", "leased_at", "ended_at").agg(F.count("*").alias("deliveries"))
    return (
        together.withColumn(
            "starts_at",
            F.explode(
                F.sequence(stretch(F.col("leased_at"), width_seconds), stretch(F.col("ended_at"), width_seconds), step)
            ),
        )
        .withColumn("starts", F.greatest("leased_at", "starts_at"))
        .withColumn("ends", F.least(F.col("ended_at"), F.col("starts_at") + step))
    )


def _counts(leases: DataFrame, width_seconds: int) -> DataFrame:
    """Counted where the delivery began."""
    ended_by = F.col("ended_by")
    failed = ended_by.isin(str(Event.NAK), str(Event.REJECT), str(Event.LEASE_END))
    return (
        leases.withColumn("starts_at", stretch(F.col("leased_at"), width_seconds))
        .groupBy(*KEY)
        .agg(
            F.count("*").alias("received"),
            count_when(ended_by == str(Event.ACK)).alias("succeeded"),
            count_when(failed).alias("failed"),
        )
    )
