"""Incremental update of a lake's tables: messages that have ended are counted once.

    tables/_counts   counts of messages that have ended in every group (`penstock.spark.counts`)
    tables/_open     all entries of the other messages
    tables/_leases   worker deliveries whose counts are not final (`penstock.spark.lake.deliveries`)

An update reads these and the windows added since. Messages that had ended and are live again (redrive, seek) are looked
up in the audit, and their counts subtracted until they end again. Everything is recomputed when final counts have
changed: old days were dropped, a queue has a new group, a group was moved back before messages it had skipped, or a
receive was committed long after it happened.

An update is one change of the lake: an interrupted one has no effect, or is completed by the next run.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from pyspark.sql import Window
from pyspark.sql import functions as F

from penstock.domain.lifecycle import Event
from penstock.domain.timestamps import to_time
from penstock.spark.audit import has_ended, is_event
from penstock.spark.computed_columns import COUNTS, DATED, HELD_LEASES, LIFECYCLES, POISON, READ, dated
from penstock.spark.counts import counted, counted_flows, counted_loads, joined, taken_away
from penstock.spark.failures import failing, poison
from penstock.spark.lake.archive import Progress
from penstock.spark.lake.columns import spark_schema
from penstock.spark.lake.compaction import day_of
from penstock.spark.lake.deliveries import LATE_MICROS, split_deliveries
from penstock.spark.lake.frames import group_positions, read_files
from penstock.spark.lake.manifest import TablesState
from penstock.spark.lake.table_files import StagedTables, crowded_days, kept_frame
from penstock.spark.lifecycles import deliveries, lives
from penstock.spark.tables import Tables, tables_of, utc

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.lake.lake import Lake

Width = Callable[[float], float]
# Version of the kept files; a change makes the next run recompute everything.
VERSION = 1
MESSAGE = ["queue", "id"]
# Counts that one task can process, and entries that are kept in memory between steps.
FEW_COUNTS = 250_000
FEW_ENTRIES = 1_000_000
# Entries of a message are not older than its send, up to clock differences.
SLACK = timedelta(days=1)


def update_tables(
    spark: SparkSession, lake: Lake, width: Width, progress: Progress = lambda _: None, *, recompute: bool = False
) -> Tables:
    """Bring every table up to the last archive run, which is also where the period ends."""
    with lake.change("tables") as path:
        update = _Update(spark, lake, StagedTables(spark, lake, path), width, progress)
        try:
            history = update.compute(None if recompute else lake.manifest.history())
        finally:
            update.release()
        update.staged.stage(history)
    poison = kept_frame(spark, lake, "poison", READ["poison"])
    return Tables(width(_seconds(history)), _period(history), poison=poison, **update.tables)


class _Seen(NamedTuple):
    """The groups of entries, and the times between which they lie (microseconds)."""

    groups: dict[str, set[str]]
    begins_at: int | None
    ends_at: int | None
    first_received_at: int | None


class _Update:
    """One update of the tables."""

    def __init__(self, spark: SparkSession, lake: Lake, staged: StagedTables, width: Width, progress: Progress) -> None:
        self.spark = spark
        self.lake = lake
        self.staged = staged
        self.width = width
        self.progress = progress
        self.files = lake.manifest.files("audit")
        self.tables: dict[str, pyarrow.Table] = {}
        self._held: list[DataFrame] = []

    def compute(self, known: TablesState | None) -> TablesState:
        kept_from = self.lake.manifest.state.kept_from
        if known is not None and (known.version, known.kept_from) == (VERSION, kept_from):
            new = self._since(known)
            seen = _seen(new)
            if not self._is_overtaken(known, seen):
                return self._compute(known, new, seen)
        self.progress("everything is computed anew")
        self.staged.replace_all(is_unknown=known is None)
        new = self._audit(list(self.files))
        return self._compute(TablesState(VERSION), new, _seen(new))

    def release(self) -> None:
        for frame in self._held:
            frame.unpersist()

    def _hold(self, frame: DataFrame) -> DataFrame:
        self._held.append(frame.persist())
        return frame

    # -- input -------------------------------------------------------------------------------------------------------

    def _audit(self, paths: list[str]) -> DataFrame:
        return read_files(self.spark, self.lake.folder, "audit", paths)

    def _since(self, known: TablesState) -> DataFrame:
        """Entries of windows added since. A file is named after the last window in it."""
        paths = [path for path in self.files if _window_of(path) > known.window]
        return self._hold(self._audit(paths).where(F.col("window") > known.window))

    def _is_overtaken(self, known: TablesState, seen: _Seen) -> bool:
        """Whether final counts have changed."""
        has_new_group = any(
            queue in known.ended and groups - set(known.groups.get(queue, [])) for queue, groups in seen.groups.items()
        )
        passed = self.lake.manifest.passed()
        is_moved_back = any(
            passed.get(queue, {}).get(group, 0) < position
            for queue, groups in known.skipped.items()
            for group, position in groups.items()
        )
        is_late = seen.first_received_at is not None and seen.first_received_at < known.upto_at - LATE_MICROS
        return has_new_group or is_moved_back or is_late

    def _again(self, known: TablesState, new: DataFrame, opened: DataFrame) -> DataFrame | None:
        """The earlier entries of messages that had ended and have new entries: their send is not new, and they were not
        live."""
        if self.staged.is_recomputed:
            return None
        messages = new.groupBy(*MESSAGE).agg(
            F.max(is_event(Event.SEND)).alias("is_sent"), F.min("created_at").alias("created_at")
        )
        revived = self._hold(
            messages.where(~F.col("is_sent")).join(opened.select(*MESSAGE).distinct(), MESSAGE, "left_anti")
        )
        first_at = revived.agg(F.min("created_at")).collect()[0][0]
        if first_at is None:
            return None
        first_day = f"{utc(first_at) - SLACK:%Y-%m-%d}"
        earlier = self._audit([path for path in self.files if day_of(path) >= first_day])
        return self._hold(
            earlier.where(F.col("window") <= known.window)
            .join(revived.select(*MESSAGE), MESSAGE, "left_semi")
            .repartition(*MESSAGE)
        )

    # -- output ------------------------------------------------------------------------------------------------------

    def _compute(self, known: TablesState, new: DataFrame, seen: _Seen) -> TablesState:
        history = self._next(known, seen)
        width_seconds = self.width(_seconds(history))
        opened = self.staged.kept("_open", spark_schema("audit"))
        again = self._again(known, new, opened)
        entries = new.unionByName(opened)
        entries = entries if again is None else entries.unionByName(again)
        # All tables group entries by message: this is the only shuffle, unless there are too many to keep.
        by_message = entries.repartition(*MESSAGE)
        if not self.staged.is_recomputed or self._row_count() <= FEW_ENTRIES:
            entries = self._hold(by_message)
            new = entries if self.staged.is_recomputed else new
        found = self._write_lives(by_message, history)
        days = found.select(*MESSAGE, "day", F.lit(True).alias("is_known")).distinct()
        failed = self._hold(failing(entries).join(days, MESSAGE, "left"))
        is_open = F.coalesce("is_known", F.lit(False)) & F.col("day").isNull()
        live = found.where("day is null").select(*MESSAGE)
        self.staged.write("_open", entries.join(live, MESSAGE, "left_semi").select(*spark_schema("audit").names))
        delivered = self._hold(deliveries(entries))
        workers = split_deliveries(delivered, self.staged.kept("_leases", HELD_LEASES), known.window, history.upto_at)
        self.staged.write("_leases", workers.waiting.repartition(1))
        kept = [
            self.staged.kept("_counts", COUNTS),
            counted_flows(new, width_seconds),
            *counted(found.where("day is not null"), failed.where(~is_open)),
            counted_loads(workers.final_loads(width_seconds)),
        ]
        if again is not None:
            kept += [taken_away(counts) for counts in self._count_again(again, history)]
        self.staged.write("_counts", joined(kept, width_seconds).repartition(1))
        counts = [
            self.staged.read("_counts", COUNTS),
            *counted(found.where("day is null"), failed.where(is_open)),
            counted_loads(workers.other_loads(width_seconds)),
        ]
        self._write_tables(joined(counts, width_seconds), width_seconds, _period(history)[1])
        self.staged.write("poison", poison(failed, schema=dated(POISON)), by_day=True)
        self._rewrite_days(again)
        return self._with_ended(history)

    def _row_count(self) -> int:
        return sum(window.rows.get("audit", 0) for window in self.lake.manifest.windows())

    def _next(self, known: TablesState, seen: _Seen) -> TablesState:
        state = self.lake.manifest.state
        groups = {queue: set(names) for queue, names in known.groups.items()}
        for queue, names in seen.groups.items():
            groups.setdefault(queue, set()).update(names)
        begins = [at for at in (known.begins_at, seen.begins_at) if at is not None]
        ends = [at for at in (known.ends_at, seen.ends_at) if at is not None]
        return msgspec.structs.replace(
            known,
            window=state.windows,
            upto_at=state.upto_at or max(ends, default=0),
            kept_from=state.kept_from,
            begins_at=min(begins, default=None),
            ends_at=max(ends, default=None),
            groups={queue: sorted(names) for queue, names in groups.items()},
        )

    def _lives(self, entries: DataFrame, history: TablesState) -> DataFrame:
        """Lifecycles with the day on which their message ended in the last of its groups, or null while it is live. The
        entries of a message must be in one partition."""
        readers = group_positions(self.spark, self.lake, history.groups)
        message = Window.partitionBy(*MESSAGE)
        is_open = F.max(F.col("is_read") & ~has_ended()).over(message)
        ended_at = F.max("finished_at").over(message)
        day = F.when(~is_open, F.date_format(ended_at, "yyyy-MM-dd"))
        return lives(entries, readers).withColumn("day", day)

    def _write_lives(self, entries: DataFrame, history: TablesState) -> DataFrame:
        self.progress("lifecycles")
        self.staged.write_lives(self._lives(entries, history))
        return self.staged.read("lifecycles", dated(LIFECYCLES))

    def _count_again(self, again: DataFrame, history: TablesState) -> list[DataFrame]:
        """The counts to subtract; marks the days that hold these messages for rewriting."""
        found = self._hold(self._lives(again, history).where("is_read"))
        self.staged.rewritten |= {row["day"] for row in found.select("day").distinct().collect()}
        return counted(found, failing(again))

    def _rewrite_days(self, again: DataFrame | None) -> None:
        """Rewrite days that lost messages, and past days with many small files."""
        self.staged.rewritten |= crowded_days(self.lake)
        for name, schema in DATED.items():
            rows = self.staged.kept_days(name, dated(schema))
            if rows is not None:
                left = rows if again is None else rows.join(again.select(*MESSAGE).distinct(), MESSAGE, "left_anti")
                self.staged.write(name, left.select(*dated(schema).names), by_day=True)

    def _write_tables(self, counts: DataFrame, width_seconds: float, until: datetime | None) -> None:
        """Counts are usually few. As a local relation in one partition they are grouped, sorted and joined without a
        shuffle. The report needs the tables on the driver, so they are collected and written from there."""
        first = counts.limit(FEW_COUNTS + 1).toArrow()
        is_few = first.num_rows <= FEW_COUNTS
        counts = self.spark.createDataFrame(first).coalesce(1) if is_few else self._hold(counts)
        for name, frame in tables_of(counts, width_seconds, until).items():
            self.progress(name)
            self.tables[name] = frame.toArrow()
            self.staged.write_arrow(name, self.tables[name])

    def _with_ended(self, history: TablesState) -> TablesState:
        """Record what the next run needs to know of messages whose counts are final."""
        ended = set(history.ended)
        skipped = {queue: dict(groups) for queue, groups in history.skipped.items()}
        for row in self.staged.ended_and_skipped().collect():
            if row["ended"]:
                ended.add(row["queue"])
            if row["position"] is not None:
                groups = skipped.setdefault(row["queue"], {})
                groups[row["group"]] = max(groups.get(row["group"], 0), row["position"])
        return msgspec.structs.replace(history, ended=sorted(ended), skipped=skipped)


def _seen(entries: DataFrame) -> _Seen:
    groups: dict[str, set[str]] = {}
    times: list[int] = []
    received: list[int] = []
    received_at = F.when(is_event(Event.RECEIVE), F.unix_micros("at"))
    found = entries.groupBy("queue", "group").agg(
        F.min(F.unix_micros("at")).alias("begins"), F.max(F.unix_micros("at")).alias("ends"), F.min(received_at)
    )
    for queue, group, begins, ends, first in found.collect():
        if group is not None:
            groups.setdefault(queue, set()).add(group)
        times += [begins, ends]
        received += [] if first is None else [first]
    return _Seen(groups, min(times, default=None), max(times, default=None), min(received, default=None))


def _seconds(history: TablesState) -> float:
    begins, ends = _period(history)
    return (ends - begins).total_seconds() if begins and ends else 0.0


def _period(history: TablesState) -> tuple[datetime | None, datetime | None]:
    if history.begins_at is None or history.ends_at is None:
        return None, None
    return to_time(history.begins_at), to_time(max(history.ends_at, history.upto_at))


def _window_of(path: str) -> int:
    return int(path.rpartition("/")[2].partition("-")[0])
