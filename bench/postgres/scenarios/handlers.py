"""Messages through the worker loop of each, one handler call per message, with handlers that do nothing."""

from __future__ import annotations

import statistics
from typing import Any

from bench.finding import Finding, Target, shown_spread, spread
from bench.postgres.contenders import PENSTOCK, Contender, node
from bench.postgres.field import Field, tell
from bench.rounds import ratios
from bench.workers.turns import run_turn

LEAST_RATIO = 3.0
FIRST_COUNT = 500
MOST = 50_000
LEAST_SECONDS = 2.0
# pgmq has no worker of its own. Handlers of pg-boss get many messages at a time, and all of them are finished together.
WORKERS = {PENSTOCK: "penstock", "pgqueuer": "PgQueuer", "procrastinate": "Procrastinate"}


def run(field: Field) -> Finding:
    contenders = [one for one in field.contenders() if one.name in WORKERS or one.name in node.PACKAGES]
    counts = {one.name: _fitting_count(field, one) for one in contenders}
    rates: dict[str, list[float]] = {one.name: [] for one in contenders}
    for _ in range(field.rounds):
        for contender in contenders:
            rates[contender.name].append(_rate(field, contender, counts[contender.name]))
    return Finding(
        name="handlers",
        title="Handlers that do nothing, called for each message in one process: messages per second",
        header=["who", "messages per second", "Penstock ÷ it"],
        rows=[_row(name, rates) for name in rates],
        data={name: spread(samples) for name, samples in rates.items()},
        draw=lambda axes: _draw(axes, rates),
        targets=_targets(rates),
    )


def _fitting_count(field: Field, contender: Contender) -> int:
    """How many messages take some seconds: fewer would mostly measure how long a worker takes to start."""
    count = FIRST_COUNT
    while count < MOST and count / _rate(field, contender, count) < LEAST_SECONDS:
        count = min(MOST, count * 5)
    return count


def _rate(field: Field, contender: Contender, count: int) -> float:
    tell(f"handlers: {contender.name}, {count:,} messages")
    name = contender.name
    if name in WORKERS:
        # These make their own schema.
        return run_turn("postgres", WORKERS[name], field.server.fresh(f"bench_handlers_{name}"), count)["per_second"]
    return node.handlers(name, field.fresh(contender), count)


def _row(name: str, rates: dict[str, list[float]]) -> list[str]:
    against = "" if name == PENSTOCK else shown_spread(spread(ratios(rates, PENSTOCK, name)), ".1f")
    return [name, shown_spread(spread(rates[name])), against]


def _targets(rates: dict[str, list[float]]) -> list[Target]:
    peers = [name for name in rates if name != PENSTOCK]
    if not peers:
        return []
    best = max(peers, key=lambda name: statistics.median(rates[name]))
    ratio = statistics.median(ratios(rates, PENSTOCK, best))
    return [Target(f"at least {LEAST_RATIO:g} times {best}, the fastest peer", ratio, ratio >= LEAST_RATIO)]


def _draw(axes: Any, rates: dict[str, list[float]]) -> None:
    axes.bar([*rates], [statistics.median(samples) for samples in rates.values()])
    axes.set(title="No-op handlers, one process", ylabel="messages per second", yscale="log")
    axes.tick_params(axis="x", rotation=20)
