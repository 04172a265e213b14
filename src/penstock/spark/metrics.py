"""Metrics: what happened per queue, group and stretch of time, a minute unless said otherwise.

Deliveries are counted where the entries are, and what became of messages where the lives are: a group's backlog is then
that of the messages it reads. All that follows works on as many rows as there are stretches.
"""

from __future__ import annotations

from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from penstock.domain.lifecycle import Event
from penstock.spark.schemas import BACKLOG, METRICS, conform
from penstock.spark.trails import (
    SETTLING,
    count_when,
    has_ended,
    interval,
    is_event,
    seconds_between,
    stretch,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MINUTE = 60
KEY = ("queue", "group", "starts_at")
# What entries tell, and what lives tell.
ENTRIES = ("received", "settled", "retried")
TURNS = ("sent", "revived", "succeeded", "dead")
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
TIMED = ("waited", "processed")
# Exact up to this many values in a stretch, and within one part in so many beyond.
ACCURACY = 1000
# The age of the oldest message is exact to this part of a stretch.
COHORTS = 60


def flows(audit: DataFrame, width_seconds: float = MINUTE) -> DataFrame:
    """How many deliveries began and ended in each stretch."""
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
    """How many messages became live and how many ended in each stretch."""
    spells = lifecycles.select("queue", "group", F.posexplode("spells").alias("place", "spell"))
    begins = (F.col("spell.begins_at"), F.when(F.col("place") == 0, F.lit("sent")).otherwise(F.lit("revived")))
    ends = (F.col("spell.ends_at"), F.col("spell.outcome"))
    turn = F.col("turn")
    return (
        spells.select("queue", "group", F.stack(F.lit(2), *begins, *ends).alias("at", "turn"))
        .where(F.col("at").isNotNull())
        .groupBy("queue", "group", stretch(F.col("at"), width_seconds).alias("starts_at"))
        .agg(
            *(count_when(turn == name).alias(name) for name in TURNS[:-1]),
            count_when(~turn.isin(*TURNS[:-1])).alias("dead"),
        )
    )


def metrics(
    flows: DataFrame, lifecycles: DataFrame, width_seconds: float = MINUTE, until: datetime | None = None
) -> DataFrame:
    """Rates, percentiles and backlog of each stretch, from `flows` and `lifecycles` of the same audit, up to a time or
    to the last thing that happened.

    Waiting counts where a message was first received, processing where it ended.
    """
    turned = turns(lifecycles, width_seconds)
    last = _last(flows, turned, width_seconds, until)
    parts = [
        flows,
        turned,
        _percentiles(lifecycles, width_seconds),
        _backlog(flows, turned, lifecycles, last, width_seconds),
    ]
    united = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
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


def _percentiles(lifecycles: DataFrame, width_seconds: float) -> DataFrame:
    """Each life counts at two times, in one pass."""
    nothing = F.lit(None).cast("double")
    received = (F.col("first_received_at"), F.col("waited_seconds"), nothing)
    finished = (F.col("finished_at"), nothing, F.col("processed_seconds"))
    found = (
        lifecycles.select("queue", "group", F.stack(F.lit(2), *received, *finished).alias("at", *TIMED))
        .where(F.col("at").isNotNull() & F.coalesce(*TIMED).isNotNull())
        .groupBy("queue", "group", stretch(F.col("at"), width_seconds).alias("starts_at"))
        .agg(*(F.percentile_approx(what, list(PERCENTILES.values()), ACCURACY).alias(what) for what in TIMED))
    )
    percentiles = (
        F.col(what)[place].alias(f"{what}_{name}") for what in TIMED for place, name in enumerate(PERCENTILES)
    )
    return found.select(*KEY, *percentiles)


def backlog(
    flows: DataFrame, lifecycles: DataFrame, width_seconds: float = MINUTE, until: datetime | None = None
) -> DataFrame:
    """What was live when each stretch ended, and how old the oldest of it was.

    Every stretch has a row from the first to the last that anything happened in, by queue and group.
    """
    turned = turns(lifecycles, width_seconds)
    last = _last(flows, turned, width_seconds, until)
    return _backlog(flows, turned, lifecycles, last, width_seconds)


def _backlog(
    flows: DataFrame, turned: DataFrame, lifecycles: DataFrame, last: DataFrame, width_seconds: float
) -> DataFrame:
    upto = Window.partitionBy("queue", "group").orderBy("starts_at").rowsBetween(Window.unboundedPreceding, 0)
    change = F.col("sent") + F.col("revived") - F.col("succeeded") - F.col("dead")
    counted = _filled(flows, turned, last, width_seconds).withColumn("change", F.sum(change).over(upto))
    oldest = _oldest(lifecycles, last, width_seconds)
    ends_at = F.least(F.col("starts_at") + interval(width_seconds), F.col("until"))
    return (
        counted.alias("counted")
        .join(oldest.alias("oldest"), _same("counted", "oldest", *KEY), "left")
        .join(F.broadcast(_older(lifecycles)).alias("older"), _same("counted", "older", "queue", "group"), "left")
        .withColumn("backlog", F.col("change") + F.coalesce("older.messages", F.lit(0)))
        .select(*(f"counted.{name}" for name in KEY), "backlog", "oldest_sent_at", "counted.until")
        .withColumn(
            "oldest_age_seconds",
            F.when(F.col("backlog") > 0, seconds_between(F.col("oldest_sent_at"), ends_at)),
        )
        .transform(conform(BACKLOG))
    )


def _filled(flows: DataFrame, turned: DataFrame, last: DataFrame, width_seconds: float) -> DataFrame:
    """How many turns each stretch had, with a row of zeros where nothing happened, up to the last stretch of all
    queues."""
    seen = flows.select(*KEY).unionByName(turned, allowMissingColumns=True)
    spans = seen.groupBy("queue", "group").agg(F.min("starts_at").alias("first")).crossJoin(last)
    step = interval(width_seconds)
    empty = spans.select("queue", "group", "until", F.explode(F.sequence("first", "last", step)).alias("starts_at"))
    return (
        empty.unionByName(turned, allowMissingColumns=True)
        .groupBy(*KEY)
        .agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in TURNS), F.max("until").alias("until"))
    )


def _last(flows: DataFrame, turned: DataFrame, width_seconds: float, until: datetime | None) -> DataFrame:
    """The last stretch, and the time at which it ends: one row, for every task."""
    found = flows.select("starts_at").union(turned.select("starts_at")).agg(F.max("starts_at").alias("last"))
    if until is None:
        return F.broadcast(found.withColumn("until", F.col("last") + interval(width_seconds)))
    end = F.lit(until)
    return F.broadcast(
        found.withColumn("until", F.when(F.col("last").isNotNull(), F.greatest(F.col("last"), end))).withColumn(
            "last", F.greatest("last", stretch(F.col("until"), width_seconds))
        )
    )


def _oldest(lifecycles: DataFrame, last: DataFrame, width_seconds: float) -> DataFrame:
    """For each stretch, when the oldest message was sent that was live at its end."""
    lives = lifecycles.where(F.col("sent_at").isNotNull()).select("queue", "group", "sent_at", "spells")
    return (
        _first_turns(lives, last, width_seconds)
        .unionByName(_later_turns(lives, last, width_seconds))
        .groupBy(*KEY)
        .agg(F.min("oldest_sent_at").alias("oldest_sent_at"))
    )


def _first_turns(lives: DataFrame, last: DataFrame, width_seconds: float) -> DataFrame:
    """Of messages that live for the first time: for each stretch at least the oldest.

    Messages sent at about the same time are one cohort, which lives as long as the last of them. A cohort that ends
    before an older one is never the oldest; the others take turns, so each stretch is looked at once.
    """
    cohort_seconds = min(width_seconds, max(1.0, width_seconds / COHORTS))
    ends_at = F.get("spells", F.lit(0))["ends_at"]
    cohorts = (
        lives.withColumn("cohort", stretch(F.col("sent_at"), cohort_seconds))
        .withColumn("until", F.coalesce(stretch(ends_at, width_seconds), _never()))
        .groupBy("queue", "group", "cohort")
        # Of those that live longest the oldest: the greatest end, and then the least time.
        .agg(F.max(F.struct("until", -F.unix_micros("sent_at"))).alias("longest"))
        .select(
            *("queue", "group", "cohort", "longest.until"),
            F.timestamp_micros(-F.col("longest.col2")).alias("oldest_sent_at"),
        )
    )
    older = Window.partitionBy("queue", "group").orderBy("cohort").rowsBetween(Window.unboundedPreceding, -1)
    found = cohorts.withColumn("after", F.max("until").over(older)).withColumn(
        "first", F.greatest(stretch(F.col("cohort"), width_seconds), F.col("after"))
    )
    return _stretches(found, last, width_seconds)


def _later_turns(lives: DataFrame, last: DataFrame, width_seconds: float) -> DataFrame:
    """Of messages that were redriven or read again. They are few, and those that came and went in the same stretches
    are one."""
    spells = lives.where(F.size("spells") > 1).select(
        "queue", "group", "sent_at", F.explode(F.slice("spells", 2, 2**31 - 1)).alias("spell")
    )
    found = spells.groupBy(
        "queue",
        "group",
        stretch(F.col("spell.begins_at"), width_seconds).alias("first"),
        F.coalesce(stretch(F.col("spell.ends_at"), width_seconds), _never()).alias("until"),
    ).agg(F.min("sent_at").alias("oldest_sent_at"))
    return _stretches(found, last, width_seconds)


def _stretches(found: DataFrame, last: DataFrame, width_seconds: float) -> DataFrame:
    """A row for each stretch from `first` to before `until`."""
    step = interval(width_seconds)
    return (
        found.crossJoin(last.select("last"))
        .withColumn("final", F.least(F.col("until") - step, F.col("last")))
        .where(F.col("first") <= F.col("final"))
        .select("queue", "group", "oldest_sent_at", F.explode(F.sequence("first", "final", step)).alias("starts_at"))
    )


def _older(lifecycles: DataFrame) -> DataFrame:
    """Messages that were live already when the history begins."""
    was_there = F.get("spells", F.lit(0))["begins_at"].isNull()
    return lifecycles.where(was_there).groupBy("queue", "group").agg(F.count("*").alias("messages"))


def _same(one: str, other: str, *columns: str) -> Column:
    """A group of None is a group like any other."""
    pairs = (F.col(f"{one}.{name}").eqNullSafe(F.col(f"{other}.{name}")) for name in columns)
    return reduce(lambda first, second: first & second, pairs)


def _never() -> Column:
    return F.lit("9999-01-01 00:00:00").cast("timestamp")
