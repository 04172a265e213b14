"""The computed tables of a lake."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from penstock.spark.counts import loads_of, outcomes_of, parts_of, readers_of, times_of
from penstock.spark.failures import kinds
from penstock.spark.metrics import assembled, last_at, last_of
from penstock.spark.workers import shares

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

Period = tuple[datetime | None, datetime | None]


class Tables(msgspec.Struct, frozen=True):
    """The tables that the report reads. Only poison messages may be too many to collect."""

    width_seconds: float
    period: Period
    readers: pyarrow.Table
    outcomes: pyarrow.Table
    metrics: pyarrow.Table
    failures: pyarrow.Table
    poison: DataFrame
    workers: pyarrow.Table


def tables_of(counts: DataFrame, width_seconds: float, until: datetime | None) -> dict[str, DataFrame]:
    """The tables computed from counts, by name. No count is later than `until`; None when there is none."""
    parts = parts_of(counts)
    last = last_of(parts, width_seconds, None) if until is None else last_at(until, width_seconds)
    return {
        "readers": readers_of(counts),
        "outcomes": outcomes_of(counts),
        "metrics": assembled(parts, last, width_seconds),
        "failures": kinds(times_of(counts)),
        "workers": shares(loads_of(counts), width_seconds),
    }


def utc(time: datetime) -> datetime:
    """Convert a time that Spark returned to Python: local time without a zone."""
    return time.astimezone(UTC)
