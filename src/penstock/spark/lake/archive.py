"""The archive job: adds to the lake what happened since the last run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.errors import PipelineError, RangeTrimmed
from penstock.spark.lake import rows
from penstock.spark.lake.frames import placed, written_files
from penstock.spark.lake.layout import adopt, queue_folder
from penstock.spark.lake.manifest import FileEntry, Marks, Span, Window
from penstock.spark.lake.writer import WRITTEN, writer

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from penstock.domain.results import Part
    from penstock.engines.contract import Engine, Table
    from penstock.spark.lake.lake import Lake

# Called with a line for each step.
Progress = Callable[[str], None]
# Greater than any position.
EVERYTHING = 2**63 - 1
GAP_ADVICE = "to go on with what is left, and leave the gap, use --accept-gap"


class ArchiveRun(msgspec.Struct, frozen=True):
    """The result of one run."""

    window: int
    queues: int
    audit: int
    archive: int
    dead_letters: int
    files: int
    size: int


def archive(
    spark: SparkSession, lake: Lake, url: str, *, accept_gap: bool = False, progress: Progress = lambda _: None
) -> ArchiveRun:
    """Bring the lake up to now. Every row is added exactly once, however often runs were tried or interrupted."""
    adopt(lake)
    with lake.change("archive") as staging:
        upto_at = lake.engine.now()
        unread = _unread_after(lake.engine)
        spans, audit = plan(spark, lake, accept_gap)
        window = lake.manifest.state.windows + 1
        parts: dict[Table, list[Part]] = {"audit": audit, "archive": _split(spark, lake, "archive", spans)}
        busy = {part.queue for found in parts.values() for part in found}
        parts["dead_letters"], kept = _changed_letters(lake, _split(spark, lake, "dead_letters", spans), busy)
        for table, found in parts.items():
            if found:
                about = "" if all(part.is_counted for part in found) else "about "
                progress(f"{table.replace('_', ' ')}: {about}{sum(part.count for part in found):,} rows")
        files = _write(spark, url, window, parts, lake.folder.under(staging))
        counts: dict[str, int] = {
            table: sum(file["rows"] for file in files if file["table"] == table) for table in parts
        }
        for table, found in parts.items():
            _check_count(table, found, counts[table])
        adds = placed(files, lake.file_name(window), staging)
        lake.manifest.stage(
            adds=tuple(adds),
            # Dead letters are a snapshot, not a history.
            removes=tuple(path for path in lake.manifest.files("dead_letters") if path not in kept),
            window=Window(window, window, lake.engine.now(), _moved(spans), counts) if _moved(spans) else None,
            upto_at=upto_at,
            begun=_begun(lake, spans),
            passed=_passed(lake, spans, unread),
        )
    for queue, span in spans.items():
        lake.engine.advance(queue, lake.manifest.state.group, span.end.audit, "audit")
    counts["dead_letters"] += sum(entry.rows for entry in kept.values())
    size = sum(entry.size for _, _, entry in adds)
    return ArchiveRun(window, len(busy), **counts, files=len(adds), size=size)


def _split(spark: SparkSession, lake: Lake, table: Table, spans: dict[str, Span]) -> list[Part]:
    return [part for queue, span in spans.items() for part in rows.split_table(spark, lake.engine, table, queue, span)]


def _write(spark: SparkSession, url: str, window: int, parts: dict[Table, list[Part]], staging: str) -> list[Row]:
    """Write all tables in one job."""
    sources = [rows.LakePart(table, window, part) for table, found in parts.items() for part in found]
    tasks = rows.pack_tables(spark, sources)
    return written_files(rows.map_tasks(spark, url, tasks, writer(staging), WRITTEN)) if tasks else []


def _changed_letters(lake: Lake, found: list[Part], busy: set[str]) -> tuple[list[Part], dict[str, FileEntry]]:
    """Dead letters to write, and files that are still right: nothing happened in their queue, so none was added, and
    the count is the same, so none was removed."""
    files: dict[str, dict[str, FileEntry]] = {}
    for path, entry in lake.manifest.files("dead_letters").items():
        files.setdefault(path.split("/")[2], {})[path] = entry
    counts: Counter[str] = Counter()
    for part in found:
        counts[part.queue] += part.count
    kept: dict[str, FileEntry] = {}
    unchanged: set[str] = set()
    for queue, count in counts.items():
        there = files.get(queue_folder(queue), {})
        if queue not in busy and sum(entry.rows for entry in there.values()) == count:
            kept |= there
            unchanged.add(queue)
    return [part for part in found if part.queue not in unchanged], kept


def plan(spark: SparkSession, lake: Lake, accept_gap: bool = False) -> tuple[dict[str, Span], list[Part]]:
    """The span of every queue, and the parts of the audit. The lake's group is placed first: from then on nothing is
    trimmed that this run reads."""
    engine, marks = lake.engine, lake.manifest.marks()

    def check_gap(error: RangeTrimmed) -> None:
        if not accept_gap:
            raise RangeTrimmed(f"{error}; {GAP_ADVICE}") from None

    spans: dict[str, Span] = {}
    parts: list[Part] = []
    for queue in (info.name for info in engine.queues()):
        start = marks.get(queue) or Marks(engine.earliest(queue, "audit"), engine.earliest(queue, "messages"))
        engine.advance(queue, lake.manifest.state.group, start.audit, "audit")
        # The log's horizon is taken last, so that it covers the send of every entry.
        end = Marks(engine.horizon(queue, "audit"), engine.horizon(queue, "messages"))
        spans[queue], found = rows.split_audit(spark, engine, queue, Span(start, end), check_gap)
        parts += found
    return spans, parts


def _begun(lake: Lake, queues: Iterable[str]) -> dict[str, dict[str, int]]:
    """The position after which each group began to read, for groups seen for the first time: messages trimmed before
    that were never the group's. Nothing unread has been trimmed since."""
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


def _unread_after(engine: Engine) -> dict[str, dict[str, int]]:
    return {info.name: engine.unread_after(info.name) for info in engine.queues()}


def _passed(lake: Lake, queues: Iterable[str], before: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """The position up to which each group has no unread message: it has received or skipped everything before.

    Read before the window's end was fixed, because later receives are not in the window, and again afterwards, because
    a send in the window may have committed late at a smaller position. The smaller one counts. A removed group has
    nothing unread.
    """
    known, begun, found = lake.manifest.passed(), lake.manifest.begun(), {}
    for queue in queues:
        earlier = before.get(queue, {})
        groups = dict.fromkeys((*begun.get(queue, {}), *known.get(queue, {})), EVERYTHING)
        for group, position in lake.engine.unread_after(queue).items():
            groups[group] = min(position, earlier.get(group, 0))
        if groups != known.get(queue, {}):
            found[queue] = groups
    return found


def _moved(spans: dict[str, Span]) -> dict[str, Span]:
    return {queue: span for queue, span in spans.items() if span.start != span.end}


def _check_count(table: Table, parts: list[Part], count: int) -> None:
    """Dead letters may change during the run, and some audit entries make two rows. Reading an uncounted part detects
    removed rows by itself."""
    counted = [part.count for part in parts if part.is_counted]
    expected = sum(counted)
    may_be_more = table == "audit" or len(counted) < len(parts)
    if table != "dead_letters" and (count < expected if may_be_more else count != expected):
        raise PipelineError(f"{table}: {count:,} rows were written, and the store has {expected:,}: try again")
