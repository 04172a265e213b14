"""Work on a queue in which millions wait already."""

from __future__ import annotations

import statistics
from typing import Any

from bench.finding import Finding, Target, shown_spread, spread
from bench.postgres.contenders import PENSTOCK, PGMQ, Contender
from bench.postgres.field import Field, tell
from bench.postgres.scenarios.flow import flow_rate_at
from bench.rounds import ratios

BATCH = 100
FILL_BATCH = 1000
MOST_CHANGE = 0.15
# The others would need an hour to fill the backlog.
WHO = (PENSTOCK, PGMQ)


def run(field: Field) -> Finding:
    contenders = [one for one in field.contenders(BATCH) if one.name in WHO]
    places = {one.name: {"empty": field.fresh(one), "full": field.fresh(one, "_full")} for one in contenders}
    for contender in contenders:
        _fill(field, contender, places[contender.name]["full"])
    data = _measured(field, contenders, places)
    shares = {name: statistics.median(ratios(one, "full", "empty")) for name, one in data.items()}
    return Finding(
        name="backlog",
        title=f"With {field.backlog:,} messages waiting: messages finished per second at batch {BATCH}",
        header=["who", "empty", f"{field.backlog:,} waiting", "ratio"],
        rows=[
            [name, shown_spread(spread(one["empty"])), shown_spread(spread(one["full"])), f"{shares[name]:.2f}"]
            for name, one in data.items()
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
        notes=["Empty and full in turns; ratios are taken round by round."],
    )


def _measured(
    field: Field, contenders: list[Contender], places: dict[str, dict[str, str]]
) -> dict[str, dict[str, list[float]]]:
    data: dict[str, dict[str, list[float]]] = {one.name: {"empty": [], "full": []} for one in contenders}
    for _ in range(max(3, field.rounds)):
        for contender in contenders:
            for when, url in places[contender.name].items():
                tell(f"backlog: {contender.name}, {when}")
                data[contender.name][when].append(flow_rate_at(url, contender, BATCH, field.seconds))
    return data


def _fill(field: Field, contender: Contender, url: str) -> None:
    tell(f"backlog: filling {contender.name} with {field.backlog:,}")
    session = contender.open(url)
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
