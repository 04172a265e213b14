"""Messages in, messages out, and both at once."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from bench.finding import Finding, Target, shown_spread, spread
from bench.postgres.contenders import PENSTOCK, PGMQ, Contender
from bench.postgres.crew import at_work
from bench.postgres.field import Field, tell
from bench.rounds import ratios

BATCHES = (1, 10, 100, 1000)
# To see that it works, and where the two ends are.
QUICK_BATCHES = (1, 100)
# The target ratio to pgmq, end to end.
LEAST_RATIOS = {1: 1.0, 100: 1.7, 1000: 2.5}
# How many are put in before a queue is drained in batches of a size: enough for some seconds.
TO_DRAIN = {1: 5_000, 10: 20_000, 100: 100_000, 1000: 200_000}
FILL_BATCH = 1000
ALL_THERE_ARE = 10**12
Measured = dict[str, list[float]]


def send(field: Field) -> Finding:
    return _compared(field, "send", "Sends per second, 2 producers", _send_rate, {}, _batches(field))


def drain(field: Field) -> Finding:
    title = "Draining a filled queue: messages per second, 2 consumers"
    return _compared(field, "drain", title, _drain_rate, {}, _batches(field))


def end_to_end(field: Field) -> Finding:
    title = "End to end: messages finished per second, 2 producers and 2 consumers"
    return _compared(field, "end_to_end", title, flow_rate, LEAST_RATIOS, BATCHES)


def _batches(field: Field) -> Sequence[int]:
    return QUICK_BATCHES if field.is_quick else BATCHES


def _compared(
    field: Field,
    name: str,
    title: str,
    rate: Callable[[Field, Contender, int], float],
    least_ratios: dict[int, float],
    batches: Sequence[int],
) -> Finding:
    measured = {batch: _measured(field, name, rate, batch) for batch in batches}
    peers = [name for name in field.names if name != PENSTOCK]
    return Finding(
        name=name,
        title=title,
        header=["batch", *field.names, *(f"÷ {peer}" for peer in peers)],
        rows=[_row(field, batch, one, peers) for batch, one in measured.items()],
        data={str(batch): {who: spread(samples) for who, samples in one.items()} for batch, one in measured.items()},
        draw=lambda axes: _draw(axes, title, measured),
        targets=[_target(batch, measured[batch], least) for batch, least in least_ratios.items()],
        notes=["Medians of the rounds, with the lowest and the highest; ratios are taken round by round."],
    )


def _measured(field: Field, name: str, rate: Callable[[Field, Contender, int], float], batch: int) -> Measured:
    measured: Measured = {}
    for turn in range(field.rounds):
        for contender in field.contenders(None if name == "send" else batch):
            tell(f"{name}, batch {batch}, round {turn + 1}: {contender.name}")
            measured.setdefault(contender.name, []).append(rate(field, contender, batch))
    return measured


def _send_rate(field: Field, contender: Contender, batch: int) -> float:
    with at_work(contender, field.fresh(contender), batch, takers=0, most_waiting=ALL_THERE_ARE) as crew:
        crew.wait_for(sent=2 * batch)
        return crew.rates(field.seconds, of="sent")[0]


def _drain_rate(field: Field, contender: Contender, batch: int) -> float:
    url = field.fresh(contender)
    with at_work(contender, url, FILL_BATCH, senders=1, takers=0, most_waiting=TO_DRAIN[batch] - 1) as filling:
        filling.wait_for(sent=TO_DRAIN[batch])
    with at_work(contender, url, batch, senders=0) as crew:
        crew.wait_for(taken=1)
        return crew.rate_until_dry(filling.tally.sent, field.seconds)


def flow_rate(field: Field, contender: Contender, batch: int) -> float:
    return flow_rate_at(field.url(contender), contender, batch, field.seconds)


def flow_rate_at(url: str, contender: Contender, batch: int, seconds: float) -> float:
    with at_work(contender, url, batch) as crew:
        crew.wait_for(taken=2 * batch)
        return crew.rates(seconds)[0]


def _row(field: Field, batch: int, measured: Measured, peers: list[str]) -> list[str]:
    cells = [shown_spread(spread(measured[name])) if name in measured else "–" for name in field.names]
    against = [
        shown_spread(spread(ratios(measured, PENSTOCK, peer)), ".1f") if peer in measured else "–" for peer in peers
    ]
    return [f"{batch:,}", *cells, *against]


def _target(batch: int, measured: Measured, least: float) -> Target:
    if PGMQ not in measured:
        return Target(f"at batch {batch:,}: pgmq did not take part", 0, False)
    ratio = statistics.median(ratios(measured, PENSTOCK, PGMQ))
    return Target(f"at batch {batch:,}: at least {least:g} times pgmq", ratio, ratio >= least)


def _draw(axes: Any, title: str, measured: dict[int, Measured]) -> None:
    names = list(dict.fromkeys(name for one in measured.values() for name in one))
    for name in names:
        points = [(batch, statistics.median(one[name])) for batch, one in measured.items() if name in one]
        axes.plot(*zip(*points, strict=True), marker="o", label=name)
    axes.set(title=title, xlabel="batch", ylabel="messages per second", xscale="log", yscale="log")
    axes.legend()
    axes.grid(alpha=0.3)
