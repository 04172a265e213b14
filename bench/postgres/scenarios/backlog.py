"""Work on a queue in which millions wait already."""

from __future__ import annotations

import statistics
from typing import Any

from bench.finding import Finding, Target
from bench.postgres.contenders import PENSTOCK, PGMQ, Contender
from bench.postgres.field import Field, tell
from bench.postgres.scenarios.flow import flow_rate

BATCH = 100
FILL_BATCH = 1000
MOST_CHANGE = 0.15
# The others would need an hour to take in what these do in minutes.
WHO = (PENSTOCK, PGMQ)


def run(field: Field) -> Finding:
    contenders = [one for one in field.contenders(BATCH) if one.name in WHO]
    data: dict[str, dict[str, list[float]]] = {}
    for contender in contenders:
        field.fresh(contender)
        data[contender.name] = {"empty": [], "full": []}
    _measure(field, contenders, data, "empty")
    for contender in contenders:
        _fill(field, contender)
    _measure(field, contenders, data, "full")
    shares = {name: statistics.median(one["full"]) / statistics.median(one["empty"]) for name, one in data.items()}
    return Finding(
        name="backlog",
        title=f"With {field.backlog:,} messages waiting: messages finished per second at batch {BATCH}",
        header=["who", "empty", f"{field.backlog:,} waiting", "ratio"],
        rows=[
            [name, f"{statistics.median(one['empty']):,.0f}", f"{statistics.median(one['full']):,.0f}", f"{share:.2f}"]
            for (name, one), share in zip(data.items(), shares.values(), strict=True)
        ],
        data=data,
        draw=lambda axes: _draw(axes, data),
        targets=[
            Target(
                f"flat from empty to {field.backlog:,} waiting, within {MOST_CHANGE:.0%}",
                shares[PENSTOCK],
                shares[PENSTOCK] >= 1 - MOST_CHANGE,
            )
        ],
    )


def _measure(field: Field, contenders: list[Contender], data: dict[str, dict[str, list[float]]], when: str) -> None:
    for _ in range(max(3, field.rounds)):
        for contender in contenders:
            tell(f"backlog: {contender.name}, {when}")
            data[contender.name][when].append(flow_rate(field, contender, BATCH))


def _fill(field: Field, contender: Contender) -> None:
    tell(f"backlog: filling {contender.name} with {field.backlog:,}")
    session = contender.open(field.url(contender))
    try:
        for _ in range(field.backlog // FILL_BATCH):
            session.send(FILL_BATCH)
    finally:
        session.close()


def _draw(axes: Any, data: dict[str, dict[str, list[float]]]) -> None:
    for name, one in data.items():
        axes.plot([*one], [statistics.median(samples) for samples in one.values()], marker="o", label=name)
    axes.set(title="Messages waiting", ylabel="messages per second", ylim=(0, None))
    axes.legend()
    axes.grid(alpha=0.3)
