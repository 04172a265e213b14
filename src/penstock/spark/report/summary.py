"""The contents of the report as plain values, limited to what a page can show."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import Row
from pyspark.sql import functions as F

from penstock.spark.tables import utc

if TYPE_CHECKING:
    import pyarrow

    from penstock.spark.tables import Tables

# A row of a table, by column.
Values = Mapping[str, Any] | Row
# Points of a chart, at most.
POINTS = 80
# Bucket widths. Each is a multiple of the one before, so that counts can be merged into longer buckets.
WIDTHS = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 86_400, 7 * 86_400)
SHOWN_FAILURES = 12
SHOWN_POISON = 10
SHOWN_WORKERS = 24
SHOWN_READERS = 8


class Reader(msgspec.Struct, frozen=True):
    """One group of a queue."""

    queue: str
    group: str | None
    outcomes: dict[str, int]
    waited: tuple[float | None, float | None, float | None]
    processed: tuple[float | None, float | None, float | None]
    deliveries: int

    @property
    def messages(self) -> int:
        return sum(self.outcomes.values())


class MetricPoint(msgspec.Struct, frozen=True):
    """One time bucket of one reader."""

    starts_at: datetime
    sent: int
    received: int
    settled: int
    retried: int
    succeeded: int
    dead: int
    waited: tuple[float | None, float | None, float | None]
    processed: tuple[float | None, float | None, float | None]
    backlog: int
    oldest_age_seconds: float | None


class FailureKind(msgspec.Struct, frozen=True):
    queue: str
    group: str | None
    fingerprint: str
    pattern: str
    example: str
    failures: int
    messages: int
    dead: int
    most_failures: int
    repeated: int
    first_at: datetime
    last_at: datetime


class Poison(msgspec.Struct, frozen=True):
    queue: str
    group: str | None
    id: str
    pattern: str
    failures: int
    state: str
    last_at: datetime


class WorkerLoad(msgspec.Struct, frozen=True):
    worker: str
    received: int
    succeeded: int
    failed: int
    busy_seconds: float
    in_hand: float
    utilisation: dict[datetime, float]


class Summary(msgspec.Struct, frozen=True):
    """Everything on the page."""

    store: str
    made_at: datetime
    begins_at: datetime | None
    ends_at: datetime | None
    width_seconds: float
    sent: dict[str, int]
    readers: list[Reader]
    points: dict[tuple[str, str | None], list[MetricPoint]]
    failures: list[FailureKind]
    poison: list[Poison]
    workers: list[WorkerLoad]
    more: dict[str, int]

    @property
    def seconds(self) -> float:
        if self.begins_at is None or self.ends_at is None:
            return 0
        return (self.ends_at - self.begins_at).total_seconds()


def width_for(seconds: float) -> float:
    """The shortest bucket width with which a chart of this length has at most POINTS points."""
    return next((width for width in WIDTHS if seconds / width <= POINTS), WIDTHS[-1])


def summarise(tables: Tables, store: str, made_at: datetime) -> Summary:
    begins_at, ends_at = tables.period
    readers = tables.readers.to_pylist()
    failures = sorted(tables.failures.to_pylist(), key=lambda row: (-row["failures"], row["fingerprint"]))
    poison = tables.poison.orderBy(F.desc("failures"), "last_at", "id").limit(SHOWN_POISON).collect()
    workers = _workers(tables.workers, tables.width_seconds)
    return Summary(
        store=store,
        made_at=made_at,
        begins_at=begins_at,
        ends_at=ends_at,
        width_seconds=tables.width_seconds,
        sent=_sent(readers),
        readers=_readers(readers, tables.outcomes),
        points=_points(tables.metrics),
        failures=[_made(FailureKind, row) for row in failures[:SHOWN_FAILURES]],
        poison=[_made(Poison, row) for row in poison],
        workers=workers[:SHOWN_WORKERS],
        more={
            "failures": max(0, len(failures) - SHOWN_FAILURES),
            "poison": tables.poison.count() - SHOWN_POISON if len(poison) == SHOWN_POISON else 0,
            "workers": max(0, len(workers) - SHOWN_WORKERS),
        },
    )


def _sent(readers: list[Values]) -> dict[str, int]:
    """Messages sent to each queue, counted once however many groups read them."""
    sent: dict[str, int] = {}
    for row in readers:
        sent[row["queue"]] = max(sent.get(row["queue"], 0), row["sent"])
    return sent


def _readers(readers: list[Values], outcomes: pyarrow.Table) -> list[Reader]:
    ended: dict[tuple[str, str | None], dict[str, int]] = {}
    for row in _sorted(outcomes, "queue", "group", "outcome"):
        ended.setdefault((row["queue"], row["group"]), {})[row["outcome"]] = row["messages"]
    found = {(row["queue"], row["group"]): row for row in readers}
    return [
        Reader(*key, counts, _three(found[key], "waited"), _three(found[key], "processed"), found[key]["deliveries"])
        for key, counts in ended.items()
    ]


def _points(metrics: pyarrow.Table) -> dict[tuple[str, str | None], list[MetricPoint]]:
    points: dict[tuple[str, str | None], list[MetricPoint]] = {}
    for row in _sorted(metrics, "queue", "group", "starts_at"):
        points.setdefault((row["queue"], row["group"]), []).append(
            MetricPoint(
                starts_at=utc(row["starts_at"]),
                waited=_three(row, "waited"),
                processed=_three(row, "processed"),
                oldest_age_seconds=row["oldest_age_seconds"],
                **{
                    name: row[name]
                    for name in ("sent", "received", "settled", "retried", "succeeded", "dead", "backlog")
                },
            )
        )
    return points


def _workers(workers: pyarrow.Table, width_seconds: float) -> list[WorkerLoad]:
    by_worker: dict[str, list[Values]] = {}
    for row in _sorted(workers, "worker", "starts_at"):
        by_worker.setdefault(row["worker"], []).append(row)
    loads = [
        WorkerLoad(
            worker=worker,
            received=sum(row["received"] for row in rows),
            succeeded=sum(row["succeeded"] for row in rows),
            failed=sum(row["failed"] for row in rows),
            busy_seconds=sum(row["busy_seconds"] for row in rows),
            in_hand=sum(row["in_hand"] for row in rows) * width_seconds,
            utilisation={utc(row["starts_at"]): min(1.0, row["utilisation"]) for row in rows},
        )
        for worker, rows in by_worker.items()
    ]
    return sorted(loads, key=lambda load: (-load.busy_seconds, load.worker))


def _sorted(table: pyarrow.Table, *columns: str) -> list[Values]:
    """The rows in order, nulls first."""
    return sorted(table.to_pylist(), key=lambda row: [(row[name] is not None, row[name]) for name in columns])


def _three(row: Values, what: str) -> tuple[float | None, float | None, float | None]:
    return row[f"{what}_p50"], row[f"{what}_p95"], row[f"{what}_p99"]


def _made(kind: Any, row: Values) -> Any:
    values = {name: row[name] for name in kind.__struct_fields__}
    return kind(**{name: utc(value) if isinstance(value, datetime) else value for name, value in values.items()})
