"""Metrics: rates, percentiles and backlog per queue, group and time bucket, by default a minute.

Deliveries are counted from entries, and outcomes from lifecycles, so that a group's backlog has only messages that the
group reads. All later steps work on one row per bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F

from penstock.domain.lifecycle import Event
from penstock.spark.audit import (
    MICROSECONDS,
    SETTLING,
    count_when,
    has_ended,
    interval,
    is_event,
    seconds_between,
    stretch,
)
from penstock.spark.computed_columns import BACKLOG, METRICS, conform

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MINUTE = 60
KEY = ("queue", "group", "starts_at")
# Counts taken from entries, and from lifecycles.
ENTRIES = ("received", "settled", "retried")
TURNS = ("sent", "revived", "succeeded", "dead")
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
TIMED = ("waited", "processed")
# Significant digits of percentiles: durations are rounded to them and counted.
DIGITS = 3


# Adds columns `last`, the start of the last bucket, and `until`, its end.
Last = Callable[["DataFrame"], "DataFrame"]


class Parts(NamedTuple):
    """The inputs of metrics: additive counts."""

    flows: DataFrame
    turns: DataFrame
    durations: DataFrame
    spells: DataFrame
    older: DataFrame


def metrics(
    flows: DataFrame, lifecycles: DataFrame, width_seconds: float = MINUTE, until: datetime | None = None
) -> DataFrame:
    """Rates, percentiles and backlog of each bucket, from `flows` and `lifecycles` of the same audit, up to a time or
    to the last entry.

    Waiting time counts in the bucket of the first receive, processing time in that of the end.
    """
    counted = parts(flows, lifecycles, width_seconds)
    return assembled(counted, last_of(counted, width_seconds, until), width_seconds)


def backlog(
    flows: DataFrame, lifecycles: DataFrame, width_seconds: float = MINUTE, until: datetime | None = None
) -> DataFrame:
    """The number of live messages at the end of each bucket, and the age of the oldest.

    Each queue and group has a row for every bucket from its first entry to the last bucket of all.
    """
    counted = parts(flows, lifecycles, width_seconds)
    return _backlog(counted, last_of(counted, width_seconds, until), width_seconds)


def parts(flows: DataFrame, lifecycles: DataFrame, width_seconds: float) -> Parts:
    return Parts(
        flows,
        turns(lifecycles, width_seconds),
        durations(lifecycles, width_seconds),
        spells(lifecycles, width_seconds),
        older(lifecycles),
    )


def assembled(parts: Parts, last: Last, width_seconds: float) -> DataFrame:
    frames = [
        parts.flows,
        parts.turns,
        percentiles(parts.durations, KEY),
        _backlog(parts, last, width_seconds),
    ]
    united = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
    values = [column for column in united.columns if column not in KEY]
    finished = F.col("succeeded") + F.col("dead")
    return (
        united.groupBy(*KEY)
        .agg(*(F.max(column).alias(column) for column in values))
        .fillna(0, subset=[*ENTRIES, *TURNS, "backlog"])
        .withColumn("finished", finished)
        .withColumn("failure_rate", F.when(finished > 0, F.col("dead") / finished))
        .transform(conform(METRICS))
    )


def flows(audit: DataFrame, width_seconds: float = MINUTE) -> DataFrame:
    """Deliveries that began and ended in each bucket."""
    return (
        audit.where(F.col("group").isNotNull())
        .withColumn("starts_at", stretch(F.col("at"), width_seconds))
        .groupBy(*KEY)
        .agg(
            count_when(is_event(Event.RECEIVE)).alias("received"),
            count_when(is_event(*SETTLING)).alias("settled"),
            count_when(is_event(Event.NAK, Event.LEASE_END) & ~has_ended()).alias("retried"),
        )
    )


def turns(lifecycles: DataFrame, width_seconds: float = MINUTE) -> DataFrame:
    """Messages that became live and that ended in each bucket."""
    return (
        each_turn(lifecycles)
        .groupBy("queue", "group", stretch(F.col("at"), width_seconds).alias("starts_at"))
        .agg(*(count_when(F.col("turn") == name).alias(name) for name in TURNS))
    )


def each_turn(lifecycles: DataFrame) -> DataFrame:
    spells = lifecycles.select("queue", "group", F.posexplode("spells").alias("place", "spell"))
    begins = (F.col("spell.begins_at"), F.when(F.col("place") == 0, F.lit("sent")).otherwise(F.lit("revived")))
    is_good = F.col("spell.outcome") == "succeeded"
    ends = (F.col("spell.ends_at"), F.when(is_good, F.lit("succeeded")).otherwise(F.lit("dead")))
    found = spells.select("queue", "group", F.stack(F.lit(2), *begins, *ends).alias("at", "turn"))
    return found.where(F.col("at").isNotNull())


def durations(lifecycles: DataFrame, width_seconds: float = MINUTE) -> DataFrame:
    """How many messages had each waiting and processing time."""
    starts_at = stretch(F.col("at"), width_seconds).alias("starts_at")
    found = each_duration(lifecycles).groupBy("queue", "group", starts_at, "what", "seconds")
    return found.agg(F.count("*").alias("messages"))


def each_duration(lifecycles: DataFrame) -> DataFrame:
    """Durations, rounded to significant digits."""
    received = (F.col("first_received_at"), F.lit(TIMED[0]), F.col("waited_seconds"))
    finished = (F.col("finished_at"), F.lit(TIMED[1]), F.col("processed_seconds"))
    return (
        lifecycles.select("queue", "group", F.stack(F.lit(2), *received, *finished).alias("at", "what", "seconds"))
        .where(F.col("at").isNotNull() & F.col("seconds").isNotNull())
        .withColumn("seconds", _rounded(F.col("seconds")))
    )


def _rounded(seconds: Column) -> Column:
    micros = F.round(seconds * MICROSECONDS).cast("long")
    unit = F.pow(F.lit(10), F.greatest(F.lit(0), F.length(micros.cast("string")) - DIGITS)).cast("long")
    return F.round(micros / unit).cast("long") * unit / F.lit(float(MICROSECONDS))


def percentiles(durations: DataFrame, key: Sequence[str]) -> DataFrame:
    """Nearest-rank percentiles."""
    kind = Window.partitionBy(*key, "what")
    upto = F.sum("messages").over(kind.orderBy("seconds").rowsBetween(Window.unboundedPreceding, 0))
    ranked = durations.groupBy(*key, "what", "seconds").agg(F.sum("messages").alias("messages"))
    ranked = ranked.withColumn("upto", upto).withColumn("every", F.sum("messages").over(kind))
    found = (
        F.min(F.when((F.col("what") == what) & (F.col("upto") >= part * F.col("every")), F.col("seconds"))).alias(
            f"{what}_{name}"
        )
        for what in TIMED
        for name, part in PERCENTILES.items()
    )
    return ranked.groupBy(*key).agg(*found)


def spells(lifecycles: DataFrame, width_seconds: float = MINUTE) -> DataFrame:
    """The first and last bucket in which messages were live, and when the oldest of them was sent. Messages that ended
    in the bucket in which they began are not in any backlog, and are left out."""
    cut = (stretch(F.col(name), width_seconds).alias(name) for name in ("begins_at", "ends_at"))
    return (
        each_spell(lifecycles)
        .groupBy("queue", "group", "is_first", *cut)
        .agg(F.min("sent_at").alias("oldest_sent_at"))
        .where(F.col("ends_at").isNull() | (F.col("begins_at") < F.col("ends_at")))
    )


def each_spell(lifecycles: DataFrame) -> DataFrame:
    lives = lifecycles.where(F.col("sent_at").isNotNull())
    return lives.select("queue", "group", "sent_at", F.posexplode("spells").alias("place", "spell")).select(
        *("queue", "group", "sent_at", (F.col("place") == 0).alias("is_first"), "spell.begins_at", "spell.ends_at")
    )


def older(lifecycles: DataFrame) -> DataFrame:
    """Messages that were already live when the audit begins."""
    return lifecycles.where(was_there()).groupBy("queue", "group").agg(F.count("*").alias("messages"))


def was_there() -> Column:
    return F.get("spells", F.lit(0))["begins_at"].isNull()


def _backlog(parts: Parts, last: Last, width_seconds: float) -> DataFrame:
    upto = Window.partitionBy("queue", "group").orderBy("starts_at").rowsBetween(Window.unboundedPreceding, 0)
    change = F.col("sent") + F.col("revived") - F.col("succeeded") - F.col("dead")
    counted = _filled(parts, last, width_seconds).withColumn("change", F.sum(change).over(upto))
    oldest = _oldest(parts.spells, last, width_seconds)
    ends_at = F.least(F.col("starts_at") + interval(width_seconds), F.col("until"))
    return (
        counted.alias("counted")
        .join(oldest.hint("merge").alias("oldest"), _same("counted", "oldest", *KEY), "left")
        .join(parts.older.hint("merge").alias("older"), _same("counted", "older", "queue", "group"), "left")
        .withColumn("backlog", F.col("change") + F.coalesce("older.messages", F.lit(0)))
        .select(*(f"counted.{name}" for name in KEY), "backlog", "oldest_sent_at", "counted.until")
        .withColumn(
            "oldest_age_seconds",
            F.when(F.col("backlog") > 0, seconds_between(F.col("oldest_sent_at"), ends_at)),
        )
        .transform(conform(BACKLOG))
    )


def _filled(parts: Parts, last: Last, width_seconds: float) -> DataFrame:
    """The turns of each bucket, with zeros for buckets without any, up to the last bucket of all queues."""
    turned = parts.turns
    seen = parts.flows.select(*KEY).unionByName(turned, allowMissingColumns=True)
    spans = seen.groupBy("queue", "group").agg(F.min("starts_at").alias("first")).transform(last)
    step = interval(width_seconds)
    empty = spans.select("queue", "group", "until", F.explode(F.sequence("first", "last", step)).alias("starts_at"))
    return (
        empty.unionByName(turned, allowMissingColumns=True)
        .groupBy(*KEY)
        .agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in TURNS), F.max("until").alias("until"))
    )


def last_of(parts: Parts, width_seconds: float, until: datetime | None) -> Last:
    """The last bucket and when it ends, from the counts."""
    seen = parts.flows.select("starts_at").union(parts.turns.select("starts_at"))
    found = seen.agg(F.max("starts_at").alias("last"))
    if until is None:
        row = found.withColumn("until", F.col("last") + interval(width_seconds))
    else:
        end = F.when(F.col("last").isNotNull(), F.greatest(F.col("last"), F.lit(until)))
        row = found.withColumn("until", end).withColumn(
            "last", F.greatest("last", stretch(F.col("until"), width_seconds))
        )
    return lambda frame: frame.crossJoin(F.broadcast(row))


def last_at(until: datetime, width_seconds: float) -> Last:
    """The same where no count is later than a known time."""
    end = F.lit(until)
    return lambda frame: frame.withColumns({"until": end, "last": stretch(end, width_seconds)})


def _oldest(spells: DataFrame, last: Last, width_seconds: float) -> DataFrame:
    """For each bucket, when the oldest message was sent that was live at its end.

    In their first spell, messages that end before an older one are never the oldest, and the others follow each other
    without overlap. Later spells (redrive, seek) are few.
    """
    live = spells.withColumn("ends", F.coalesce("ends_at", _never()))
    earlier = Window.partitionBy("queue", "group").orderBy("oldest_sent_at").rowsBetween(Window.unboundedPreceding, -1)
    first = live.where("is_first").withColumn("first", F.greatest("begins_at", F.max("ends").over(earlier)))
    later = live.where(~F.col("is_first")).withColumn("first", F.col("begins_at"))
    return (
        _stretches(first.unionByName(later), last, width_seconds)
        .groupBy(*KEY)
        .agg(F.min("oldest_sent_at").alias("oldest_sent_at"))
    )


def _stretches(found: DataFrame, last: Last, width_seconds: float) -> DataFrame:
    """A row for each bucket from `first` to before `ends`."""
    step = interval(width_seconds)
    return (
        found.transform(last)
        .withColumn("final", F.least(F.col("ends") - step, F.col("last")))
        .where(F.col("first") <= F.col("final"))
        .select("queue", "group", "oldest_sent_at", F.explode(F.sequence("first", "final", step)).alias("starts_at"))
    )


def _same(one: str, other: str, *columns: str) -> Column:
    """Equal, with nulls equal to each other."""
    pairs = (F.col(f"{one}.{name}").eqNullSafe(F.col(f"{other}.{name}")) for name in columns)
    return reduce(lambda first, second: first & second, pairs)


def _never() -> Column:
    return F.lit("9999-01-01 00:00:00").cast("timestamp")
