"""What the report tells, as plain values: the tables of the pipeline, cut down to what a page can show."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import functions as F

from penstock.spark.metrics import ACCURACY, PERCENTILES
from penstock.spark.tables import utc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from penstock.spark.tables import Tables

# A plot has about this many points at most.
POINTS = 80
WIDTHS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 86_400, 7 * 86_400)
SHOWN_FAILURES = 12
SHOWN_POISON = 10
SHOWN_WORKERS = 24
SHOWN_READERS = 8


class Reader(msgspec.Struct, frozen=True):
    """A queue as one group reads it."""

    queue: str
    group: str | None
    outcomes: dict[str, int]
    waited: tuple[float | None, float | None, float | None]
    processed: tuple[float | None, float | None, float | None]
    deliveries: int

    @property
    def messages(self) -> int:
        return sum(self.outcomes.values())


class Point(msgspec.Struct, frozen=True):
    """A stretch of time of one reader."""

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


class Failure(msgspec.Struct, frozen=True):
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
    points: dict[tuple[str, str | None], list[Point]]
    failures: list[Failure]
    poison: list[Poison]
    workers: list[WorkerLoad]
    more: dict[str, int]

    @property
    def seconds(self) -> float:
        if self.begins_at is None or self.ends_at is None:
            return 0
        return (self.ends_at - self.begins_at).total_seconds()


def width_for(seconds: float) -> float:
    """The shortest stretch with which a plot of so long a time has not too many points."""
    return next((width for width in WIDTHS if seconds / width <= POINTS), WIDTHS[-1])


def summarise(tables: Tables, store: str, made_at: datetime) -> Summary:
    begins_at, ends_at = tables.period
    readers = _readers(tables.lifecycles, tables.outcomes)
    failures = tables.failures.orderBy(F.desc("failures"), "fingerprint")
    poison = tables.poison.orderBy(F.desc("failures"), "last_at", "id")
    workers = _workers(tables.workers, tables.width_seconds)
    return Summary(
        store=store,
        made_at=made_at,
        begins_at=begins_at,
        ends_at=ends_at,
        width_seconds=tables.width_seconds,
        sent={row["queue"]: row["sent"] for row in _sent(tables.lifecycles).collect()},
        readers=readers,
        points=_points(tables.metrics),
        failures=[_made(Failure, row) for row in failures.limit(SHOWN_FAILURES).collect()],
        poison=[_made(Poison, row) for row in poison.limit(SHOWN_POISON).collect()],
        workers=workers[:SHOWN_WORKERS],
        more={
            "failures": max(0, tables.failures.count() - SHOWN_FAILURES),
            "poison": max(0, tables.poison.count() - SHOWN_POISON),
            "workers": max(0, len(workers) - SHOWN_WORKERS),
        },
    )


def _sent(lifecycles: DataFrame) -> DataFrame:
    """Messages, not their lives in several groups."""
    by_group = lifecycles.groupBy("queue", "group").agg(F.count("sent_at").alias("sent"))
    return by_group.groupBy("queue").agg(F.max("sent").alias("sent"))


def _readers(lifecycles: DataFrame, outcomes: DataFrame) -> list[Reader]:
    ended: dict[tuple[str, str | None], dict[str, int]] = {}
    for row in outcomes.orderBy("queue", "group", "outcome").collect():
        ended.setdefault((row["queue"], row["group"]), {})[row["outcome"]] = row["messages"]
    shares = list(PERCENTILES.values())
    times = lifecycles.groupBy("queue", "group").agg(
        F.percentile_approx("waited_seconds", shares, ACCURACY).alias("waited"),
        F.percentile_approx("processed_seconds", shares, ACCURACY).alias("processed"),
        F.sum("deliveries").alias("deliveries"),
    )
    found = {(row["queue"], row["group"]): row for row in times.collect()}
    return [
        Reader(*key, counts, _three(found[key]["waited"]), _three(found[key]["processed"]), found[key]["deliveries"])
        for key, counts in ended.items()
    ]


def _points(metrics: DataFrame) -> dict[tuple[str, str | None], list[Point]]:
    points: dict[tuple[str, str | None], list[Point]] = {}
    for row in metrics.orderBy("queue", "group", "starts_at").collect():
        points.setdefault((row["queue"], row["group"]), []).append(
            Point(
                starts_at=utc(row["starts_at"]),
                waited=(row["waited_p50"], row["waited_p95"], row["waited_p99"]),
                processed=(row["processed_p50"], row["processed_p95"], row["processed_p99"]),
                oldest_age_seconds=row["oldest_age_seconds"],
                **{
                    name: row[name]
                    for name in ("sent", "received", "settled", "retried", "succeeded", "dead", "backlog")
                },
            )
        )
    return points


def _workers(workers: DataFrame, width_seconds: float) -> list[WorkerLoad]:
    by_worker: dict[str, list[Row]] = {}
    for row in workers.orderBy("worker", "starts_at").collect():
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


def _three(values: list[float] | None) -> tuple[float | None, float | None, float | None]:
    return (values[0], values[1], values[2]) if values else (None, None, None)


def _made(kind: Any, row: Row) -> Any:
    values = {name: row[name] for name in kind.__struct_fields__}
    return kind(**{name: utc(value) if isinstance(value, datetime) else value for name, value in values.items()})
