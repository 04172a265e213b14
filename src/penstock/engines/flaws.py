"""Flaws: states that a fault left behind in a store. `doctor` reports them; `repair` fixes those that need no decision,
or for which `Choices` has one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.domain.results import Check, Repair
from penstock.domain.validation import shown

# A batch that was reopened and got no message for this long was opened by mistake.
STRANDED_SECONDS = 600


class Flaw(NamedTuple):
    """`action` describes the repair and `mend` performs it; `mend` is None while a decision is missing, and `advice`
    names it."""

    name: str
    level: str
    finding: str
    action: str
    mend: Callable[[], object] | None
    advice: str = "penstock repair"


class Choices(NamedTuple):
    """Decisions of the operator: what to do with stranded batches, and whether sessions may be terminated."""

    batches: str | None = None
    terminate: bool = False


NOTHING_CHOSEN = Choices()


def checks(flaws: Iterable[Flaw]) -> list[Check]:
    return [Check(flaw.name, flaw.level, flaw.finding, flaw.advice) for flaw in flaws]


def repaired(flaws: Iterable[Flaw], dry_run: bool) -> list[Repair]:
    done: list[Repair] = []
    for flaw in flaws:
        if flaw.mend is None:
            done.append(Repair(flaw.name, flaw.finding, flaw.advice, False))
            continue
        if not dry_run:
            flaw.mend()
        done.append(Repair(flaw.name, flaw.finding, flaw.action, not dry_run))
    return done


def stranded(queue: str, batch: str, count: int, choice: str | None, end: Callable[[], object]) -> Flaw:
    """A batch that was never started: a message was sent to it just after the previous batch of the name had ended."""
    finding = (
        f"{count} messages of queue {shown(queue)} wait in batch {shown(batch)}, which was opened after the last one "
        "of that name had ended, and was never started"
    )
    action = f"{'started' if choice == 'start' else 'cancelled'} batch {shown(batch)} of queue {shown(queue)}"
    advice = "penstock repair --batches start, or --batches cancel"
    return Flaw("stranded batches", "warning", finding, action, None if choice is None else end, advice)
