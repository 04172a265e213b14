"""Compares the store after the demo with the plan."""

from __future__ import annotations

from collections import Counter

import msgspec

from penstock.cli.demo import plan
from penstock.cli.demo.story import Report, Stats, read_stats
from penstock.client.store import Store
from penstock.domain.lifecycle import Event
from penstock.domain.results import AuditEntry


class DemoCheck(msgspec.Struct, frozen=True):
    """One check: its name, whether it passed, and what was found."""

    name: str
    ok: bool
    found: str


class Findings(msgspec.Struct, frozen=True):
    stats: Stats
    dead: Counter[tuple[str, str, str]]
    taken_over: int
    story_id: str | None
    trail: list[AuditEntry]
    verdicts: list[DemoCheck]

    @property
    def ok(self) -> bool:
        return all(verdict.ok for verdict in self.verdicts)


def examine(store: Store, report: Report) -> Findings:
    stats = read_stats(store)
    trails = {one: store.queue(plan.ORDERS).audit(one) for one in report.killed_ids}
    taken_over = sum(_was_taken_over(trail) for trail in trails.values())
    story_id = max(trails, key=lambda one: len(trails[one]), default=None)
    return Findings(
        stats=stats,
        dead=_dead_by_reason(store),
        taken_over=taken_over,
        story_id=story_id,
        trail=[] if story_id is None else trails[story_id],
        verdicts=[
            *_end_verdicts(report),
            *_outcome_verdicts(stats),
            _conservation_verdict(stats),
            _takeover_verdict(report, taken_over),
            _batch_verdict(store, report),
            _schedule_verdict(store),
            _address_verdict(report),
        ],
    )


def _end_verdicts(report: Report) -> list[DemoCheck]:
    ended = "everything ended in time" if report.drained else "some messages are still live"
    crashed = ", ".join(report.crashed) or "all ended by themselves"
    return [
        DemoCheck("Everything was worked off", report.drained, ended),
        DemoCheck("Only the one consumer died", not report.crashed, crashed),
    ]


def _outcome_verdicts(stats: Stats) -> list[DemoCheck]:
    verdicts = []
    for (queue, group), expected in plan.expected_outcomes().items():
        found = {name: count for name, count in _outcomes(stats, queue, group).items() if count}
        counts = ", ".join(f"{count:,} {name}" for name, count in found.items())
        verdicts.append(DemoCheck(f"{queue} ended in {group} as planned", found == expected, counts))
    return verdicts


def _conservation_verdict(stats: Stats) -> DemoCheck:
    """Law 7: sent = live + ended, in every group."""
    sent = plan.sent_counts()
    sums = {reader: _accounted(stats, *reader) for reader in plan.READERS}
    wrong = [
        f"{queue}/{group}: sent {sent[queue]}, found {sums[queue, group]}"
        for queue, group in plan.READERS
        if sums[queue, group] != sent[queue]
    ]
    total = f"{sum(sums.values()):,} of {sum(sent[queue] for queue, _ in plan.READERS):,}"
    return DemoCheck("Sent = live + ended, in every group", not wrong, "; ".join(wrong) or total)


def _takeover_verdict(report: Report, taken_over: int) -> DemoCheck:
    held = len(report.killed_ids)
    return DemoCheck(
        "Orders of the killed consumer were taken over",
        taken_over == held == plan.VICTIM_COUNT,
        f"{taken_over} of {held}",
    )


def _batch_verdict(store: Store, report: Report) -> DemoCheck:
    batch = store.queue(plan.REPORTS).batch(plan.BATCH).info()
    received = sum(tally.ends for tally in report.tallies.values())
    return DemoCheck(
        "The batch's end message came exactly once",
        received == 1 and batch.state == "finished",
        f"received {received}×, batch {batch.state} with {batch.finished} of {batch.total}",
    )


def _schedule_verdict(store: Store) -> DemoCheck:
    sent = [one for one in store.queue(plan.REPORTS).archive(limit=1000) if one.message.json() == plan.SCHEDULED]
    return DemoCheck("The schedule sent exactly once", len(sent) == 1, f"sent {len(sent)}×")


def _address_verdict(report: Report) -> DemoCheck:
    return DemoCheck(
        "An address has one live message",
        report.refused_addresses == plan.DIGEST_COUNT and report.waited == "succeeded",
        f"{report.refused_addresses} second sends refused, the first one {report.waited or 'still live'}",
    )


def _outcomes(stats: Stats, queue: str, group: str) -> dict[str, int]:
    return stats[queue, group].outcomes if (queue, group) in stats else {}


def _accounted(stats: Stats, queue: str, group: str) -> int:
    if (queue, group) not in stats:
        return 0
    one = stats[queue, group]
    return one.held + one.available + one.redo + one.in_progress + sum(one.outcomes.values())


def _was_taken_over(trail: list[AuditEntry]) -> bool:
    """The lease ended, and afterwards another consumer received the message."""
    place = next((place for place, step in enumerate(trail) if step.event is Event.LEASE_END), len(trail))
    return any(
        step.event is Event.RECEIVE and step.group == plan.DEFAULT and step.by != plan.VICTIM for step in trail[place:]
    )


def _dead_by_reason(store: Store) -> Counter[tuple[str, str, str]]:
    reasons: Counter[tuple[str, str, str]] = Counter()
    for queue in plan.QUEUES:
        letters = store.queue(queue).dead_letters(limit=10_000)
        reasons.update((queue, str(one.outcome), one.reason or "its time was up") for one in letters)
    return reasons
