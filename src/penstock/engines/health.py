"""What is stuck in a store, and what to do about it. An engine finds it, by statements of these names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.domain.names import shown
from penstock.domain.observations import Check
from penstock.engines.statements import Statements

Ask = Callable[[str], list[tuple[Any, ...]]]


def flow(ask: Ask, statements: Statements) -> Iterator[Check]:
    """All that keeps messages from going on, or the word that there is nothing."""
    stuck = list(_stuck(ask, statements))
    yield from stuck or [Check("flow", "ok", "nothing is stuck")]
    ((dead,),) = ask(statements.dead_letter_count)
    if dead:
        advice = "penstock dead QUEUE, then redrive or purge them"
        yield Check("dead letters", "warning", f"{dead} dead letters", advice)


def _stuck(ask: Ask, statements: Statements) -> Iterator[Check]:
    for queue, group, count in ask(statements.stuck_leases):
        finding = f"{count} leases of group {shown(group)} in queue {shown(queue)} ended and were not reclaimed"
        yield Check("leases", "warning", finding, "penstock sweep, or run a worker: nobody sweeps or receives")
    for queue, count in ask(statements.late_held):
        yield Check("held", "warning", f"{count} messages of queue {shown(queue)} are due and wait", "penstock sweep")
    for (name,) in ask(statements.late_schedules):
        yield Check("schedules", "warning", f"schedule {shown(name)} missed its tick", "penstock sweep: nobody sweeps")
    for queue, batch in ask(statements.open_batches):
        finding = f"batch {shown(batch)} of queue {shown(queue)} was never started"
        yield Check("batches", "warning", finding, f"penstock batch start {queue} {batch}, or cancel it")
    for queue, group in ask(statements.silent_groups):
        finding = f"group {shown(group)} of queue {shown(queue)} has unread messages and was not used for an hour"
        yield Check("groups", "warning", finding, f"penstock receive {queue} --group {group}")
    for queue, reason in ask(statements.carried_groups):
        finding = f"queue {shown(queue)}: {shown(reason, 200)}"
        yield Check("groups", "warning", finding, "raise group_idle_seconds, or remove what no longer reads")
    for (name,) in ask(statements.paused_queues):
        yield Check("paused", "warning", f"queue {shown(name)} is paused", f"penstock resume {name}")
