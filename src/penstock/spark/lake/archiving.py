"""The archive job: what happened since the last run goes into the lake."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.errors import PipelineError, RangeTrimmed
from penstock.spark.lake import rows
from penstock.spark.lake.frames import places, write_aside
from penstock.spark.lake.manifest import Marks, Span, Sums, Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engines.contract import Engine, Table
    from penstock.spark.lake.opening import Lake

Say = Callable[[str], None]
GAP_ADVICE = "to go on with what is left, and leave the gap, use --accept-gap"


class Archived(msgspec.Struct, frozen=True):
    """What one run of the archive job has done."""

    window: int
    queues: int
    audit: int
    archive: int
    dead_letters: int
    files: int
    size: int


def archive(
    spark: SparkSession, lake: Lake, url: str, *, accept_gap: bool = False, say: Say = lambda _: None
) -> Archived:
    """Bring the lake up to now, exactly once however often it is tried and wherever it was interrupted."""
    with lake.changing("archive") as aside:
        spans = plan(lake, accept_gap)
        window = lake.manifest.state.windows + 1
        queues = list(spans)
        adds, sums = [], {}
        for table in rows.LAKE_TABLES:
            found = rows.sources(lake.engine, table, spans, 2 * spark.sparkContext.defaultParallelism)
            if not found:
                continue
            say(f"{table.replace('_', ' ')}: {sum(one.part.count for one in found if not one.makes_sends):,} rows")
            files, sums[table] = write_aside(rows.frame(spark, url, table, window, found), lake.folder, table, aside)
            _check_count(table, found, sums[table])
            adds += places(files, table, queues, f"{window:010d}")
        lake.manifest.stage(
            adds=tuple(adds),
            removes=tuple(lake.manifest.files("dead_letters")),  # they are as they are now, not as they were
            window=Window(window, window, lake.engine.now(), _moved(spans), sums),
        )
    for queue, span in spans.items():
        lake.engine.advance(queue, lake.manifest.state.group, span.end.audit, "audit")
    counts = [sums.get(table, Sums()).rows for table in rows.LAKE_TABLES]
    return Archived(window, len(_moved(spans)), *counts, len(adds), sum(size for _, _, size in adds))


def plan(lake: Lake, accept_gap: bool = False) -> dict[str, Span]:
    """For every queue, from where to where. Before anything is read the lake's group holds back trimming."""
    engine, marks = lake.engine, lake.manifest.marks()
    spans = {}
    for queue in (info.name for info in engine.queues()):
        start = marks.get(queue) or Marks(engine.earliest(queue, "audit"), engine.earliest(queue, "messages"))
        engine.advance(queue, lake.manifest.state.group, start.audit, "audit")
        # The log's horizon comes last: then the sends of all that has happened are before it.
        end = Marks(engine.horizon(queue, "audit"), engine.horizon(queue, "messages"))
        spans[queue] = Span(_readable(engine, queue, Span(start, end), accept_gap), end)
    return spans


def _readable(engine: Engine, queue: str, span: Span, accept_gap: bool) -> Marks:
    """Where to begin: where the last run ended, unless the store has removed some of it since."""
    found: dict[Table, int | str] = {"audit": span.start.audit, "messages": span.start.messages}
    for table, end in (("audit", span.end.audit), ("messages", span.end.messages)):
        try:
            engine.window(queue, found[table], end, 1, table)
        except RangeTrimmed as error:
            if not accept_gap:
                raise RangeTrimmed(f"{error}; {GAP_ADVICE}") from None
            found[table] = engine.earliest(queue, table)
    return Marks(**found)


def _moved(spans: dict[str, Span]) -> dict[str, Span]:
    return {queue: span for queue, span in spans.items() if span.start != span.end}


def _check_count(table: Table, found: list[rows.Source], sums: Sums) -> None:
    """Sends are made of messages and of some endings, so the audit is checked from below."""
    expected = sum(one.part.count for one in found if not (one.makes_sends and one.part.table == "archive"))
    if sums.rows < expected if table == "audit" else sums.rows != expected and table != "dead_letters":
        raise PipelineError(f"{table}: {sums.rows:,} rows were written, and the store has {expected:,}: try again")
