"""Findings: each rule reads the summary and yields sentences for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.domain.lifecycle import OUTCOMES, Event
from penstock.spark.failures import BY_ITSELF
from penstock.spark.report.charts import has_several_groups, name_of
from penstock.spark.report.format import clock, duration, every, number, plural, quoted, share
from penstock.spark.report.summary import FailureKind, MetricPoint, Reader, Summary

# Thresholds: share of failures, failures of one message, and share of retries with the least deliveries to judge.
WORRYING_SHARE = 0.05
REPEATED = 3
STORM_SHARE, STORM_SETTLED = 0.5, 20
# Messages are ready, and none was received for this long.
STALLED_SECONDS = 60
# Growth of the backlog from the middle to the end of the period, and its least size.
GROWTH, GROWTH_LEAST = 1.5, 50
SHOWN_FAILURES = 4
# Percentiles that differ by less are shown as one; load of the busiest worker against the idlest.
SAME, UNEVEN, UNEVEN_SECONDS = 1.2, 4, 10


class Finding(NamedTuple):
    level: str  # good, note or bad
    sentence: str


def findings(summary: Summary) -> list[Finding]:
    if not summary.readers:
        return [Finding("note", "Nothing has happened yet: there is no message in the lake.")]
    found = [*_ended(summary), *_stalled(summary), *_failing(summary), *_storms(summary), *_vanished(summary)]
    found += [*_expired(summary), *_growing(summary), *_times(summary), *_balance(summary)]
    order = {"bad": 0, "note": 1, "good": 2}
    first, rest = found[:1], sorted(found[1:], key=lambda one: order[one.level])
    return [*first, *rest]


def _ended(summary: Summary) -> Iterator[Finding]:
    sent, queues = sum(summary.sent.values()), len(summary.sent)
    live = {_key(reader): _live(reader) for reader in summary.readers}
    waiting = sum(live.values())
    whole = f"{plural(sent, 'message')} in {plural(queues, 'queue')}"
    if not waiting:
        yield Finding("good", f"Everything that was sent has ended, in every group: {whole}.")
        return
    key = max(live, key=lambda one: live[one])
    age = max((points[-1].oldest_age_seconds or 0 for points in summary.points.values()), default=0)
    oldest = f" The oldest is {duration(age)} old." if age else ""
    # A message waits in every group that reads it: the number may exceed the messages sent.
    each = " (counted in each group)" if has_several_groups(summary) else ""
    most = f"most of them in {name_of(summary, key)}"
    yield Finding("note", f"{whole} were sent; {number(waiting)} have not ended yet{each}, {most}.{oldest}")


def _stalled(summary: Summary) -> Iterator[Finding]:
    """Readers with ready messages that have not received for long."""
    if summary.begins_at is None or summary.ends_at is None:
        return
    for reader in summary.readers:
        ready, points = reader.outcomes.get("ready", 0), summary.points.get(_key(reader), [])
        age = points[-1].oldest_age_seconds if points else None
        received = [point.starts_at for point in points if point.received]
        silent = (summary.ends_at - (received[-1] if received else summary.begins_at)).total_seconds()
        silent -= summary.width_seconds if received else 0
        if ready and silent >= STALLED_SECONDS and (age or 0) >= STALLED_SECONDS:
            since = f"since {clock(received[-1], summary.seconds)} UTC" if received else "at all"
            yield Finding(
                "bad",
                f"Nothing was received from {name_of(summary, _key(reader))} {since}, though "
                f"{messages_of(ready)} {'is' if ready == 1 else 'are'} ready; the oldest is {duration(age)} old.",
            )


def _failing(summary: Summary) -> Iterator[Finding]:
    for reader in summary.readers:
        ended = sum(count for state, count in reader.outcomes.items() if state in OUTCOMES)
        dead = ended - reader.outcomes.get("succeeded", 0)
        if ended and dead / ended >= WORRYING_SHARE:
            yield Finding(
                "bad",
                f"{share(dead, ended)} of the messages that ended in {name_of(summary, _key(reader))} did not succeed: "
                f"{number(dead)} of {number(ended)}.",
            )
    shown = [failure for failure in summary.failures if failure.pattern not in BY_ITSELF.values()]
    shown.sort(key=lambda failure: (-failure.dead, -failure.failures))
    for failure in shown[:SHOWN_FAILURES]:
        yield Finding("bad" if failure.dead else "note", _failure_sentence(summary, failure))


def _failure_sentence(summary: Summary, failure: FailureKind) -> str:
    where = name_of(summary, (failure.queue, failure.group))
    error = quoted(failure.example if failure.messages == 1 else failure.pattern)
    if failure.most_failures >= REPEATED:
        often = f"failed {failure.most_failures} times with the same error"
        text = f"{messages_of(failure.repeated)} of {where} {often}: {error}."
        if failure.messages == failure.repeated:
            return text
        end = f", and {number(failure.dead)} ended that way" if failure.dead else ""
        return f"{text} In all it happened {number(failure.failures)} times to {messages_of(failure.messages)}{end}."
    if failure.dead == failure.messages:
        return f"{plural(failure.messages, 'message')} of {where} ended with {error}."
    if not failure.dead:
        one = "it was" if failure.messages == 1 else "all of them were"
        return f"{plural(failure.messages, 'message')} of {where} failed with {error}, but {one} tried again."
    return f"{messages_of(failure.messages)} of {where} failed with {error}; for {number(failure.dead)} it was the end."


def _storms(summary: Summary) -> Iterator[Finding]:
    """Buckets in which at least half of the deliveries were retried."""
    for key, points in summary.points.items():
        stormy = [point for point in points if _is_storm(point)]
        if not stormy:
            continue
        worst = max(stormy, key=lambda point: point.retried / point.settled)
        width = every(summary.width_seconds)
        often = "once" if len(stormy) == 1 else f"{number(len(stormy))} times"
        yield Finding(
            "bad",
            f"A retry storm in {name_of(summary, key)}: {often} at least half of the deliveries that ended within "
            f"{one(width)} had to be tried again, worst at {clock(worst.starts_at, summary.seconds)} UTC "
            f"({share(worst.retried, worst.settled)} of {number(worst.settled)}).",
        )


def _is_storm(point: MetricPoint) -> bool:
    return point.settled >= STORM_SETTLED and point.retried >= STORM_SHARE * point.settled


def _vanished(summary: Summary) -> Iterator[Finding]:
    for failure in summary.failures:
        if failure.pattern == BY_ITSELF[Event.LEASE_END]:
            where = name_of(summary, (failure.queue, failure.group))
            late = f", too late for {number(failure.dead)}" if failure.dead else ""
            yield Finding(
                "note",
                f"{plural(failure.failures, 'delivery', 'deliveries')} of {where} ended because the consumer vanished "
                f"or was too slow; others took over{late}.",
            )


def _expired(summary: Summary) -> Iterator[Finding]:
    for reader in summary.readers:
        count = reader.outcomes.get("expired", 0)
        if count:
            has, where = "its" if count == 1 else "their", name_of(summary, _key(reader))
            yield Finding("note", f"{messages_of(count)} of {where} had not been handled when {has} time was over.")


def _growing(summary: Summary) -> Iterator[Finding]:
    for key, points in summary.points.items():
        if len(points) < 4:
            continue
        middle, last = points[len(points) // 2].backlog, points[-1].backlog
        if last >= GROWTH_LEAST and last >= GROWTH * middle:
            yield Finding(
                "bad",
                f"The backlog of {name_of(summary, key)} is growing: {number(middle)} in the middle of the time, "
                f"{number(last)} at its end.",
            )


def _times(summary: Summary) -> Iterator[Finding]:
    waiting = [reader for reader in summary.readers if reader.waited[0] is not None]
    if not waiting:
        return
    slowest = max(waiting, key=lambda reader: reader.waited[1] or 0)
    half, most = slowest.waited[0] or 0, slowest.waited[1] or 0
    who = f"Messages of {name_of(summary, _key(slowest))} waited longest" if len(waiting) > 1 else "Messages waited"
    if most <= SAME * half:
        yield Finding("good", f"{who}: about {duration(half)}.")
    else:
        yield Finding("good", f"{who}: half of them up to {duration(half)}, one in twenty more than {duration(most)}.")


def _balance(summary: Summary) -> Iterator[Finding]:
    busy = [load for load in summary.workers if load.busy_seconds > 0]
    if len(busy) < 2 or summary.more["workers"]:
        return
    most, least = busy[0], busy[-1]
    if most.busy_seconds > UNEVEN * least.busy_seconds and most.busy_seconds > UNEVEN_SECONDS:
        yield Finding(
            "note",
            f"Work is spread unevenly: {most.worker} was busy for {duration(most.busy_seconds)}, "
            f"{least.worker} for {duration(least.busy_seconds)}.",
        )


def messages_of(count: int) -> str:
    return plural(count, "message")


def one(width: str) -> str:
    """A bucket width with its article: a second, an hour, 5 minutes."""
    return width if width[0].isdigit() else f"an {width}" if width == "hour" else f"a {width}"


def _live(reader: Reader) -> int:
    return sum(count for state, count in reader.outcomes.items() if state not in OUTCOMES)


def _key(reader: Reader) -> tuple[str, str | None]:
    return reader.queue, reader.group
