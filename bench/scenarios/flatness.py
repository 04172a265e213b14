"""The cost of a message while many others wait."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.finding import Finding, Target, spread
from bench.peers.penstock_queue import PenstockQueue
from bench.plan import Plan, payload
from bench.rounds import rates, ratios
from bench.warm_up import warm

# Batch 1 is bound by the disk and batch 100 by the work of the engine: they could bend for different reasons.
BATCHES = (1, 100)
FILL = 10_000


def run(plan: Plan) -> Finding:
    depths = _depths(plan)
    peers = {depth: _filled(plan, depth) for depth in depths}
    data: dict[str, Any] = {"depths": depths, "microseconds": {}, "ratio": {}}
    try:
        for batch in BATCHES:
            payloads = [payload(number) for number in range(batch)]
            contenders = {str(depth): partial(peer.cycle, payloads) for depth, peer in peers.items()}
            measured = rates(contenders, plan.rounds, plan.round_seconds)
            costs = [spread([1e6 / rate for rate in measured[str(depth)]]) for depth in depths]
            data["microseconds"][str(batch)] = costs
            data["ratio"][str(batch)] = [spread(ratios(measured, str(depths[0]), str(depth))) for depth in depths]
    finally:
        for peer in peers.values():
            peer.close()
    return Finding(
        name="flatness",
        title="Penstock with messages waiting: microseconds for one message's send, receive and ack",
        header=["waiting", *(f"batch {batch}" for batch in BATCHES), *(f"÷ empty, batch {batch}" for batch in BATCHES)],
        rows=[_row(data, place) for place in range(len(depths))],
        data=data,
        draw=lambda axes: _draw(axes, data),
        targets=[_target(data, batch) for batch in BATCHES],
    )


def _depths(plan: Plan) -> list[int]:
    if plan.quick:
        return [0, 10_000, 100_000]
    return [0, 100_000, 1_000_000, *([5_000_000] if plan.full else [])]


def _filled(plan: Plan, depth: int) -> PenstockQueue:
    folder = plan.place(f"flatness-{depth}")
    peer = PenstockQueue(folder)
    for start in range(0, depth, FILL):
        peer.queue.send_many([payload(number) for number in range(start, start + FILL)])
    warm(folder, partial(peer.cycle, [payload(number) for number in range(100)]))
    return peer


def _row(data: dict[str, Any], place: int) -> list[str]:
    costs = [f"{data['microseconds'][str(batch)][place]['median']:,.1f}" for batch in BATCHES]
    against_empty = [f"{data['ratio'][str(batch)][place]['median']:.2f}" for batch in BATCHES]
    return [f"{data['depths'][place]:,}", *costs, *against_empty]


def _target(data: dict[str, Any], batch: int) -> Target:
    deepest, ratio = data["depths"][-1], data["ratio"][str(batch)][-1]["median"]
    text = f"at batch {batch}: with {deepest:,} waiting at most 1.5 times the cost of an empty queue"
    return Target(text, ratio, ratio <= 1.5)


def _draw(axes: Any, data: dict[str, Any]) -> None:
    for batch in BATCHES:
        costs = data["microseconds"][str(batch)]
        axes.plot(range(len(costs)), [one["median"] for one in costs], marker="o", label=f"batch {batch}")
    axes.set_xticks(range(len(data["depths"])), [f"{depth:,}" for depth in data["depths"]])
    axes.set(yscale="log", xlabel="messages waiting", ylabel="µs per message", title="cost beside a backlog")
    axes.legend()
