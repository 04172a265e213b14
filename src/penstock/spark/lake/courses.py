"""Some messages compared one by one: the entries in the lake with the trail that the store shows to people.

Of every course that messages of a queue have taken (what happened to them, and to which states it led) a few are asked
for, so that what befalls few messages is looked at as well.
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

    from penstock.domain.observations import AuditEntry
    from penstock.spark.lake.manifest import Window
    from penstock.spark.lake.opening import Lake

MOST_COURSES = 500
TOLD = 10


def unlike(spark: SparkSession, lake: Lake, windows: list[Window]) -> list[str]:
    """What the lake has of messages that the store still has whole, and the store tells otherwise."""
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
        except NotFound:  # gone since
            continue
        if extra := mine - theirs:
            at, event, state = min(extra)[:3]
            found.append(
                f"message {message_id} of queue {queue!r}: the lake has {event} to {state} at {at}, and the store's "
                "trail has not"
            )
    more = [f"and {len(found) - TOLD} more messages"] if len(found) > TOLD else []
    return [*found[:TOLD], *more]


def _chosen(audit: DataFrame, first_window: int) -> DataFrame:
    """Messages of which the lake has nothing from before a window: up to three for each queue and course."""
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
