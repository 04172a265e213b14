"""Flaws: states that a fault left behind in a store. An engine finds them; `doctor` tells of each, and `repair` mends
those that can be mended without a person's decision, or with the one that was given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.domain.names import shown
from penstock.domain.observations import Check, Repair

# A batch that was opened again and got no message for this long was not meant to be.
STRANDED_SECONDS = 600


class Flaw(NamedTuple):
    """`action` says what a repair does, and `mend` does it; None while a person has to decide: `advice` says what."""

    name: str
    level: str
    finding: str
    action: str
    mend: Callable[[], object] | None
    advice: str = "penstock repair"


class Choices(NamedTuple):
    """What a person has decided: what becomes of stranded batches, and whether sessions may be ended."""

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
    """A batch that nobody started: a message came just after the last batch of that name had ended."""
    finding = (
        f"{count} messages of queue {shown(queue)} wait in batch {shown(batch)}, which was opened after the last one "
        "of that name had ended, and was never started"
    )
    action = f"{'started' if choice == 'start' else 'cancelled'} batch {shown(batch)} of queue {shown(queue)}"
    advice = "penstock repair --batches start, or --batches cancel"
    return Flaw("stranded batches", "warning", finding, action, None if choice is None else end, advice)
