"""All tables of a lake at once: computed, and kept as Parquet beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as F

from penstock.spark.failures import failing, failures, poison
from penstock.spark.lifecycles import leases, lifecycles, outcomes
from penstock.spark.metrics import flows, metrics
from penstock.spark.workers import utilisation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.lake.folders import Folder

FOLDER = "tables"
Say = Callable[[str], None]
Period = tuple[datetime | None, datetime | None]


class Tables(msgspec.Struct, frozen=True):
    """The tables of one audit, each already computed."""

    width_seconds: float
    period: Period
    lifecycles: DataFrame
    outcomes: DataFrame
    metrics: DataFrame
    failures: DataFrame
    poison: DataFrame
    workers: DataFrame


def compute(
    spark: SparkSession,
    audit: DataFrame,
    folder: Folder,
    aside: str,
    width: Callable[[float], float],
    say: Say,
    until: datetime | None = None,
) -> Tables:
    """Every table, written aside and then put in the place of the one before it: each is computed only once. The period
    ends when the audit was brought up to date, though nothing may have happened for a long time."""
    period = _period(audit, until)
    seconds = (period[1] - period[0]).total_seconds() if period[0] and period[1] else 0.0
    width_seconds = width(seconds)

    def keep(name: str, frame: DataFrame) -> DataFrame:
        say(name)
        frame.write.mode("overwrite").parquet(folder.under(aside, name))
        folder.remove(f"{FOLDER}/{name}")
        folder.move(f"{aside}/{name}", f"{FOLDER}/{name}")
        return spark.read.schema(frame.schema).parquet(folder.under(FOLDER, name))

    lives = keep("lifecycles", lifecycles(audit))
    counted, failed = flows(audit, width_seconds), failing(audit)
    with _held(counted, failed):
        return Tables(
            width_seconds=width_seconds,
            period=period,
            lifecycles=lives,
            outcomes=keep("outcomes", outcomes(lives)),
            metrics=keep("metrics", metrics(counted, lives, width_seconds, period[1])),
            failures=keep("failures", failures(failed)),
            poison=keep("poison", poison(failed)),
            workers=keep("workers", utilisation(leases(audit), width_seconds)),
        )


@contextmanager
def _held(*frames: DataFrame) -> Iterator[None]:
    """Frames that are small beside the audit and read several times are computed once."""
    for frame in frames:
        frame.persist()
    try:
        yield
    finally:
        for frame in frames:
            frame.unpersist()


def _period(audit: DataFrame, until: datetime | None) -> Period:
    begins, ends = audit.agg(F.min("at"), F.max("at")).collect()[0]
    if begins is None:
        return None, None
    return utc(begins), max(utc(ends), until or utc(ends))


def utc(time: datetime) -> datetime:
    """A time that Spark has handed to Python: it has no zone, and is that of this machine."""
    return time.astimezone(UTC)
