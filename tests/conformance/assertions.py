"""Receives that must return a message, and the checks of laws 5 and 7."""

from __future__ import annotations

from typing import Any

from penstock import AuditEntry, Delivery, Event, GroupStats, Queue, State
from penstock.domain.lifecycle import is_legal

EVERYTHING = 1_000
NOTHING = GroupStats(
    total=0,
    in_progress=0,
    redo=0,
    done=0,
    available=0,
    held=0,
    dead=0,
    consumers=0,
    oldest_age_seconds=None,
    lag=0,
    outcomes={},
)


def take(queue: Queue, **options: Any) -> Delivery:
    """Receive one message; there must be one."""
    deliveries = queue.receive(**options)
    assert len(deliveries) == 1, f"expected one delivery, got {deliveries}"
    return deliveries[0]


def take_all(queue: Queue, **options: Any) -> list[Delivery]:
    return queue.receive(limit=EVERYTHING, **options)


def payloads(items: list[Any]) -> list[Any]:
    """The payloads of deliveries, messages or dead letters, decoded."""
    return [item.json() for item in items]


def ids(items: list[Any]) -> list[str]:
    return [item.id for item in items]


def trail(queue: Queue, message_id: str, group: str = "default") -> list[tuple[Event, State]]:
    """The audit entries of a message in one group."""
    return [(entry.event, entry.state) for entry in group_entries(queue, message_id, group)]


def group_entries(queue: Queue, message_id: str, group: str = "default") -> list[AuditEntry]:
    return [entry for entry in queue.audit(message_id) if entry.group in (None, group)]


def assert_trail_is_legal(queue: Queue, message_id: str, group: str = "default") -> None:
    """Law 7: each audit entry is a transition of the lifecycle table from the state before. Law 5: attempts have no
    gaps."""
    state: State | None = None
    attempt = 0
    entries = group_entries(queue, message_id, group)
    assert entries[0].event is Event.SEND
    for entry in entries:
        assert is_legal(state, entry.event, entry.state), f"{state} -{entry.event}-> {entry.state} in {entries}"
        state = entry.state
        attempt = _next_attempt(entry, attempt)
        if entry.event in _COUNTED:
            assert entry.attempt == attempt, f"{entry} is not attempt {attempt} in {entries}"
    times = [entry.at for entry in entries]
    assert times == sorted(times)


_COUNTED = (Event.RECEIVE, Event.ACK, Event.NAK, Event.REJECT)


def _next_attempt(entry: AuditEntry, attempt: int) -> int:
    if entry.event is Event.RECEIVE:
        return attempt + 1
    if entry.event is Event.RELEASE:
        return attempt - 1
    return 0 if entry.event in (Event.RESCHEDULE, Event.REDRIVE, Event.SEEK) else attempt


def assert_books_balance(queue: Queue, sent: int, group: str = "default") -> GroupStats:
    """Law 7: everything that was sent is counted exactly once, and the total is the sum of its parts.

    A group that does not exist yet has nothing.
    """
    stats = queue.stats().get(group, NOTHING)
    live = stats.held + stats.available + stats.redo + stats.in_progress
    assert sent == live + sum(stats.outcomes.values()), stats
    assert stats.total == live + stats.done + stats.dead, stats
    assert stats.done == stats.outcomes.get(State.SUCCEEDED, 0), stats
    return stats


def nonzero(outcomes: dict[str, int]) -> dict[str, int]:
    """Outcomes with a count above zero."""
    return {outcome: count for outcome, count in outcomes.items() if count}
