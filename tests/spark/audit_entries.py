"""Audit frames built from hand-written entries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.engines import tables

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """A time in seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def entry(
    message: str, event: str, state: str, seconds: float, group: str | None = "default", **others: Any
) -> dict[str, Any]:
    return {"id": message, "event": event, "state": state, "at": at(seconds), "group": group, **others}


def send(message: str, seconds: float, state: str = "ready", **others: Any) -> dict[str, Any]:
    return entry(message, "send", state, seconds, group=None, attempt=0, by="shop", **others)


def receive(message: str, seconds: float, attempt: int = 1, by: str = "ada", **others: Any) -> dict[str, Any]:
    return entry(message, "receive", "leased", seconds, attempt=attempt, by=by, **others)


def audit_frame(spark: SparkSession, entries: list[dict[str, Any]]) -> DataFrame:
    """A frame of entries in the given order, with defaults filled in."""
    defaults = {"queue": "orders", "by": "ada", "reason": None, "attempt": 1, "token": None, "created_at": NOON}
    rows = [{**defaults, "entry": place, "position": 1 + place, **one} for place, one in enumerate(entries, start=1)]
    schema = from_arrow_schema(tables.schema("audit"))
    return spark.createDataFrame([tuple(row[name] for name in schema.names) for row in rows], schema)
