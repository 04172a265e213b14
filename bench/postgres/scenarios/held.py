"""A transaction held open, as by a report or a forgotten session: until it ends, no dead row can be cleaned up."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from bench.finding import Finding, Target
from bench.postgres.contenders import PENSTOCK, PGMQ
from bench.postgres.crew import at_work
from bench.postgres.field import Field, tell

BATCH = 100
STEPS = 12
LEAST_SHARE = 0.9


def run(field: Field) -> Finding:
    step = field.held_seconds / STEPS
    data: dict[str, dict[str, list[float]]] = {}
    for contender in field.contenders(BATCH):
        url = field.fresh(contender)
        with at_work(contender, url, BATCH) as crew:
            crew.wait_for(taken=2 * BATCH)
            tell(f"held: {contender.name}, free")
            free = crew.rates(field.held_seconds / 2, every=step)
            tell(f"held: {contender.name}, with a transaction open for {field.held_seconds:g} s")
            with _open_transaction(url):
                held = crew.rates(field.held_seconds, every=step)
            # Before and after: disks have their moods, and the log has grown meanwhile.
            tell(f"held: {contender.name}, free again")
            after = crew.rates(field.held_seconds / 2, every=step)
        data[contender.name] = {"free": free, "held": held, "after": after}
    return Finding(
        name="held",
        title=f"A transaction held open for {field.held_seconds:g} s: messages per second at batch {BATCH}",
        header=["who", "free, before and after", "held, first sixth", "held, last third", "last third ÷ free"],
        rows=[_row(name, one) for name, one in data.items()],
        data=data,
        draw=lambda axes: _draw(axes, data, step),
        targets=_targets(data),
    )


@contextmanager
def _open_transaction(url: str) -> Iterator[None]:
    with psycopg.connect(url) as connection:
        connection.execute("set transaction isolation level repeatable read")
        connection.execute("select pg_current_xact_id()")
        yield
        connection.rollback()


def _free(one: dict[str, list[float]]) -> float:
    return statistics.median([*one["free"], *one["after"]])


def _share(one: dict[str, list[float]]) -> float:
    """The rate at the end against the free one."""
    return statistics.median(one["held"][-STEPS // 3 :]) / _free(one)


def _row(name: str, one: dict[str, list[float]]) -> list[str]:
    first, last = statistics.median(one["held"][: STEPS // 6]), statistics.median(one["held"][-STEPS // 3 :])
    return [name, f"{_free(one):,.0f}", f"{first:,.0f}", f"{last:,.0f}", f"{_share(one):.2f}"]


def _targets(data: dict[str, dict[str, list[float]]]) -> list[Target]:
    share = _share(data[PENSTOCK])
    targets = [Target(f"at least {LEAST_SHARE} of its own free rate", share, share >= LEAST_SHARE)]
    if PGMQ in data:
        ratio = statistics.median(data[PENSTOCK]["held"]) / statistics.median(data[PGMQ]["held"])
        targets.append(Target("while held, faster than pgmq", ratio, ratio > 1))
    return targets


def _draw(axes: Any, data: dict[str, dict[str, list[float]]], step: float) -> None:
    for name, one in data.items():
        samples = [*one["free"], *one["held"], *one["after"]]
        times = [(place - len(one["free"]) + 1) * step for place in range(len(samples))]
        axes.plot(times, samples, label=name)
    axes.axvline(0, color="grey", linestyle=":")
    axes.set(
        title=f"A transaction held open for {STEPS * step:g} s, from 0 s on",
        xlabel="s",
        ylabel="messages per second",
        yscale="log",
    )
    axes.legend()
    axes.grid(alpha=0.3)
