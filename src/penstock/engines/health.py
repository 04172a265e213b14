"""Stalled work in a store, and what to do about it. An engine has the statements, by these names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from shlex import quote
from typing import Any

from penstock.domain.results import Check, GroupStats, QueueInfo, unread_primary_group
from penstock.domain.validation import shown

Ask = Callable[[str], list[tuple[Any, ...]]]


def flow(ask: Ask, queues: Iterable[tuple[QueueInfo, dict[str, GroupStats]]]) -> Iterator[Check]:
    """Everything that keeps messages from being processed, or one check that says that nothing does."""
    unread = {info.name: unread_primary_group(info.policy, groups) for info, groups in queues}
    stuck = [*_unread_groups(unread), *_stuck(ask, unread)]
    yield from stuck or [Check("flow", "ok", "nothing is stuck")]
    ((dead,),) = ask("dead_letter_count")
    if dead:
        advice = "penstock dead QUEUE, then redrive or purge them"
        yield Check("dead letters", "warning", f"{dead} dead letters", advice)


def _unread_groups(unread: dict[str, str | None]) -> Iterator[Check]:
    for queue, group in unread.items():
        if group is not None:
            finding = (
                f"group {shown(group)} of queue {shown(queue)} was never read, other groups were: it is the primary "
                "group, and every message is kept for it"
            )
            advice = (
                "if only other groups read the queue, make one of them the primary group: "
                f"penstock queues declare {quote(queue)} primary_group=GROUP; else {_start_reading(queue, group)}"
            )
            yield Check("groups", "warning", finding, advice)


def _stuck(ask: Ask, unread: dict[str, str | None]) -> Iterator[Check]:
    for queue, group, count in ask("stuck_leases"):
        finding = f"{count} leases of group {shown(group)} in queue {shown(queue)} ended and were not reclaimed"
        yield Check("leases", "warning", finding, "penstock sweep, or run a worker: nobody sweeps or receives")
    for queue, count in ask("late_held"):
        yield Check("held", "warning", f"{count} messages of queue {shown(queue)} are due and wait", "penstock sweep")
    for (name,) in ask("late_schedules"):
        yield Check("schedules", "warning", f"schedule {shown(name)} missed its tick", "penstock sweep: nobody sweeps")
    for queue, batch in ask("open_batches"):
        finding = f"batch {shown(batch)} of queue {shown(queue)} was never started"
        yield Check("batches", "warning", finding, f"penstock batch start {quote(queue)} {quote(batch)}, or cancel it")
    for queue, group in ask("silent_groups"):
        if unread.get(queue) == group:
            continue
        finding = f"group {shown(group)} of queue {shown(queue)} has unread messages and was not used for an hour"
        yield Check("groups", "warning", finding, _start_reading(queue, group))
    for queue, reason in ask("carried_groups"):
        finding = f"queue {shown(queue)}: {shown(reason, 200)}"
        yield Check("groups", "warning", finding, "raise group_idle_seconds, or remove what no longer reads")
    for (name,) in ask("paused_queues"):
        yield Check("paused", "warning", f"queue {shown(name)} is paused", f"penstock resume {quote(name)}")


def _start_reading(queue: str, group: str) -> str:
    """The advice never suggests a receive: it would lease a message that nobody processes."""
    return (
        f"start a worker that reads group {shown(group)}: penstock worker MODULE:NAME --queue {quote(queue)}; "
        f"penstock peek {quote(queue)} --group {quote(group)} shows what waits"
    )
