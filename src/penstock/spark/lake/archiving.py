"""The archive job: what happened since the last run goes into the lake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.errors import PipelineError, RangeTrimmed
from penstock.spark.lake import rows
from penstock.spark.lake.frames import places, written_files
from penstock.spark.lake.layout import adopt, queue_folder
from penstock.spark.lake.manifest import FileEntry, Marks, Span, Window
from penstock.spark.lake.writing import WRITTEN, writer

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from penstock.engines.contract import Engine, Mark, Table
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
    adopt(lake)
    with lake.changing("archive") as aside:
        upto_at = lake.engine.now()
        spans = plan(lake, accept_gap)
        window = lake.manifest.state.windows + 1
        queues = list(spans)
        adds: list[tuple[str, str, FileEntry]] = []
        counts: dict[str, int] = dict.fromkeys(rows.LAKE_TABLES, 0)
        busy: set[str] = set()
        kept: dict[str, FileEntry] = {}
        for table in rows.LAKE_TABLES:
            found = rows.sources(lake.engine, table, spans, 2 * spark.sparkContext.defaultParallelism)
            if table == "dead_letters":
                found, kept = _changed_letters(lake, found, busy)
            if not found:
                continue
            about = "" if all(one.part.is_counted for one in found) else "about "
            say(f"{table.replace('_', ' ')}: {about}{sum(one.part.count for one in found):,} rows")
            files = _write(spark, url, table, window, found, lake.folder.under(aside))
            counts[table] = sum(file["rows"] for file in files)
            _check_count(table, found, counts[table])
            adds += places(files, table, queues, lake.file_name(window), aside)
            busy |= {one.part.queue for one in found if table != "dead_letters"}
        lake.manifest.stage(
            adds=tuple(adds),
            # They are as they are now, not as they were.
            removes=tuple(path for path in lake.manifest.files("dead_letters") if path not in kept),
            window=Window(window, window, lake.engine.now(), _moved(spans), counts) if _moved(spans) else None,
            upto_at=upto_at,
            begun=_begun(lake, queues),
        )
    for queue, span in spans.items():
        lake.engine.advance(queue, lake.manifest.state.group, span.end.audit, "audit")
    counts["dead_letters"] += sum(entry.rows for entry in kept.values())
    size = sum(entry.size for _, _, entry in adds)
    return Archived(window, len(busy), **counts, files=len(adds), size=size)


def _changed_letters(
    lake: Lake, found: list[rows.Source], busy: set[str]
) -> tuple[list[rows.Source], dict[str, FileEntry]]:
    """Dead letters that have to be written, and files that still hold what the store has: nothing has happened in their
    queue, so that none came, and none has gone, because they are as many."""
    files: dict[str, dict[str, FileEntry]] = {}
    for path, entry in lake.manifest.files("dead_letters").items():
        files.setdefault(path.split("/")[2], {})[path] = entry
    counts: Counter[str] = Counter()
    for one in found:
        counts[one.part.queue] += one.part.count
    kept: dict[str, FileEntry] = {}
    for queue, count in counts.items():
        there = files.get(queue_folder(queue), {})
        if queue not in busy and sum(entry.rows for entry in there.values()) == count:
            kept |= there
    folders = {path.split("/")[2] for path in kept}
    return [one for one in found if queue_folder(one.part.queue) not in folders], kept


def _write(spark: SparkSession, url: str, table: Table, window: int, found: list[rows.Source], aside: str) -> list[Row]:
    """Read and write in one task, from Arrow to Arrow; what comes back are the files."""
    bundles = rows.bundled(spark, found)
    read, write = rows.reader(url, table, window, bundles), writer(table, aside)
    return written_files(rows.tasks(spark, bundles).mapInArrow(lambda batches: write(read(batches)), WRITTEN))


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

    def start_of(table: Table, start: Mark, end: Mark) -> Mark:
        try:
            engine.window(queue, start, end, 1, table)
        except RangeTrimmed as error:
            if not accept_gap:
                raise RangeTrimmed(f"{error}; {GAP_ADVICE}") from None
            return engine.earliest(queue, table)
        return start

    start, end = span.start, span.end
    return Marks(start_of("audit", start.audit, end.audit), start_of("messages", start.messages, end.messages))


def _begun(lake: Lake, queues: list[str]) -> dict[str, dict[str, int]]:
    """Behind which position groups began to read that are seen for the first time: what the store had removed by then
    was never theirs. Nothing has gone since that they had not read."""
    engine, known = lake.engine, lake.manifest.begun()
    found = {}
    for queue in queues:
        groups = known.get(queue, {})
        new = [group for group in engine.groups(queue) if group not in groups]
        if new:
            oldest = engine.browse(queue, 0, None, 1)
            begins = engine.last_position(queue) if not oldest else (oldest[0].position or 1) - 1
            primary = engine.policy(queue).primary_group
            found[queue] = {**groups, **{group: 0 if group == primary else begins for group in new}}
    return found


def _moved(spans: dict[str, Span]) -> dict[str, Span]:
    return {queue: span for queue, span in spans.items() if span.start != span.end}


def _check_count(table: Table, found: list[rows.Source], count: int) -> None:
    """Dead letters come and go meanwhile, and some entries of the audit make two rows. Whoever reads a part that was
    not counted notices by itself that rows have gone."""
    counted = [one.part.count for one in found if one.part.is_counted]
    expected = sum(counted)
    may_be_more = table == "audit" or len(counted) < len(found)
    if table != "dead_letters" and (count < expected if may_be_more else count != expected):
        raise PipelineError(f"{table}: {count:,} rows were written, and the store has {expected:,}: try again")
