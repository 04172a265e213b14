"""A sample of messages, compared entry by entry with the audit trail that the store shows to users.

Up to three messages are taken for each distinct course (set of events and states) in a queue, so that rare courses are
covered.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from penstock.domain.errors import NotFound
from penstock.spark.lake.frames import read_table
from penstock.spark.tables import utc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.domain.results import AuditEntry
    from penstock.spark.lake.lake import Lake
    from penstock.spark.lake.manifest import Window

MOST_COURSES = 500
SHOWN = 10


def unlike(spark: SparkSession, lake: Lake, windows: list[Window]) -> list[str]:
    """Entries of sampled messages that the store's trail does not have."""
    if not windows:
        return []
    audit = read_table(spark, lake, "audit")
    chosen = _chosen(audit, min(window.first for window in windows))
    rows = audit.join(F.broadcast(chosen), ["queue", "id"]).collect()
    entries: dict[tuple[str, str], Counter[tuple[Any, ...]]] = {}
    for row in rows:
        entries.setdefault((row["queue"], row["id"]), Counter())[_of_lake(row)] += 1
    found = []
    for (queue, message_id), mine in sorted(entries.items()):
        try:
            theirs = Counter(_of_store(entry) for entry in lake.engine.audit(queue, message_id))
        except NotFound:  # trimmed since
            continue
        if extra := mine - theirs:
            at, event, state = min(extra)[:3]
            found.append(
                f"message {message_id} of queue {queue!r}: the lake has {event} to {state} at {at}, and the store's "
                "trail has not"
            )
    more = [f"and {len(found) - SHOWN} more messages"] if len(found) > SHOWN else []
    return [*found[:SHOWN], *more]


def _chosen(audit: DataFrame, first_window: int) -> DataFrame:
    """Messages without an entry before a window: up to three for each queue and course."""
    step = F.concat_ws(" ", "event", "state")
    courses = (
        audit.groupBy("queue", "id")
        .agg(F.sort_array(F.collect_set(step)).alias("course"), F.min("window").alias("since"))
        .where(F.col("since") >= first_window)
        .groupBy("queue", "course")
        .agg(F.array_distinct(F.array(F.min("id"), F.max("id"), F.min_by("id", F.xxhash64("id")))).alias("ids"))
        .limit(MOST_COURSES)
    )
    return courses.select("queue", F.explode("ids").alias("id"))


def _of_lake(row: Any) -> tuple[Any, ...]:
    return (utc(row["at"]), row["event"], row["state"], row["group"] or "", row["reason"] or "", row["attempt"])


def _of_store(entry: AuditEntry) -> tuple[Any, ...]:
    return (entry.at, str(entry.event), str(entry.state), entry.group or "", entry.reason or "", entry.attempt)
