"""A transaction held open, as by a report or a forgotten session: until it ends, no dead row can be cleaned up.

Each turn has a database of its own, so that with and without such a transaction the same has been written when they
are compared; they take turns in one order and then in the other, because what a disk can do changes by the minute.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import psycopg

from bench.finding import Finding, Target, shown_spread, spread
from bench.meter import database_meter
from bench.postgres.contenders import PENSTOCK, PGMQ, Contender
from bench.postgres.crew import at_work
from bench.postgres.field import Field, tell

BATCH = 100
STEPS = 12
# The end of a turn, where what cannot be cleaned up has grown most.
LAST = STEPS // 3
LEAST_SHARE = 0.9
ORDERS = (("free", "held"), ("held", "free"))


class Turn(NamedTuple):
    """Messages per second in steps, and processor microseconds of the database for a message in the last ones."""

    rates: list[float]
    cost: float

    @property
    def first(self) -> float:
        return statistics.median(self.rates[: STEPS // 6])

    @property
    def last(self) -> float:
        return statistics.median(self.rates[-LAST:])


Turns = dict[str, list[Turn]]


def run(field: Field) -> Finding:
    data = {one.name: _measured(field, one) for one in field.contenders(BATCH)}
    return Finding(
        name="held",
        title=f"A transaction held open for {field.held_seconds:g} s: messages per second at batch {BATCH}",
        header=["who", "free, last third", "held, first sixth", "held, last third", "held ÷ free", "database time"],
        rows=[_row(name, turns) for name, turns in data.items()],
        data={
            name: {when: [one._asdict() for one in several] for when, several in turns.items()}
            for name, turns in data.items()
        },
        draw=lambda axes: _draw(axes, data, field.held_seconds / STEPS),
        targets=_targets(data),
        notes=[
            "Held ÷ free compares the last thirds round by round; database time is that ratio of the processor time "
            "which the database needs for a message: the disk has no part in it.",
        ],
    )


def _measured(field: Field, contender: Contender) -> Turns:
    turns: Turns = {"free": [], "held": []}
    # One run is enough for the others, which slow down by far more.
    for number in range(field.rounds if contender.name == PENSTOCK else 1):
        for when in ORDERS[number % 2]:
            tell(f"held: {contender.name}, round {number + 1}, {when} for {field.held_seconds:g} s")
            turns[when].append(_turn(field, contender, when == "held"))
    return turns


def _turn(field: Field, contender: Contender, is_held: bool) -> Turn:
    step = field.held_seconds / STEPS
    url = field.fresh(contender)
    meter = database_meter(url)
    with at_work(contender, url, BATCH) as crew:
        crew.wait_for(taken=2 * BATCH)
        crew.rates(step)
        with _open_transaction(url) if is_held else nullcontext():
            rates = crew.rates(field.held_seconds - LAST * step, every=step)
            used, taken = meter.read(), crew.tally.taken
            rates += crew.rates(LAST * step, every=step)
            cost = 1e6 * (meter.read() - used) / max(1, crew.tally.taken - taken)
    return Turn(rates, cost)


@contextmanager
def _open_transaction(url: str) -> Iterator[None]:
    with psycopg.connect(url) as connection:
        connection.execute("set transaction isolation level repeatable read")
        connection.execute("select pg_current_xact_id()")
        yield
        connection.rollback()


def _shares(turns: Turns) -> list[float]:
    """The rate at the end against the free one at the same place."""
    return [held.last / free.last for held, free in zip(turns["held"], turns["free"], strict=True)]


def _costs(turns: Turns) -> list[float]:
    return [held.cost / max(free.cost, 1e-9) for held, free in zip(turns["held"], turns["free"], strict=True)]


def _row(name: str, turns: Turns) -> list[str]:
    rates = [
        [one.last for one in turns["free"]],
        [one.first for one in turns["held"]],
        [one.last for one in turns["held"]],
    ]
    ratios = [shown_spread(spread(one), ".2f") for one in (_shares(turns), _costs(turns))]
    return [name, *(f"{statistics.median(one):,.0f}" for one in rates), *ratios]


def _targets(data: dict[str, Turns]) -> list[Target]:
    share = statistics.median(_shares(data[PENSTOCK]))
    targets = [Target(f"at least {LEAST_SHARE} of its own free rate", share, share >= LEAST_SHARE)]
    if PGMQ in data:
        held = {who: statistics.median(one.last for one in data[who]["held"]) for who in (PENSTOCK, PGMQ)}
        ratio = held[PENSTOCK] / held[PGMQ]
        targets.append(Target("while held, faster than pgmq", ratio, ratio > 1))
    return targets


def _draw(axes: Any, data: dict[str, Turns], step: float) -> None:
    times = [(place + 1) * step for place in range(STEPS)]
    for name, turns in data.items():
        (line,) = axes.plot(times, turns["held"][0].rates[:STEPS], label=name)
        axes.plot(times, turns["free"][0].rates[:STEPS], color=line.get_color(), linestyle=":")
    axes.set(
        title=f"A transaction held open for {STEPS * step:g} s (dotted: none)",
        xlabel="s",
        ylabel="messages per second",
        yscale="log",
    )
    axes.legend()
    axes.grid(alpha=0.3)
