"""Reads of a queue with a long history, in milliseconds per call."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from bench.finding import Finding, Target, spread
from bench.peers.penstock_queue import PenstockQueue
from bench.plan import Plan, payload

CALLS = 200
FILL = 10_000


def run(plan: Plan) -> Finding:
    finished = 100_000 if plan.quick else 1_000_000
    peer = PenstockQueue(plan.place("history_reads"))
    try:
        ids = _finish(peer, finished)
        calls: dict[str, Callable[[], object]] = {
            "stats": lambda: peer.queue.stats("default"),
            "audit of one message": lambda: peer.queue.audit(random.choice(ids)),
            "find one message": lambda: peer.queue.find(random.choice(ids)),
            "explain one message": lambda: peer.queue.explain(random.choice(ids)),
            "archive, 100 latest": lambda: peer.queue.archive(limit=100),
            "dead letters": lambda: peer.queue.dead_letters(limit=100),
        }
        data = {name: spread(_milliseconds(call)) for name, call in calls.items()}
    finally:
        peer.close()
    return Finding(
        name="history_reads",
        title=f"Looking at a queue with {finished:,} finished messages",
        header=["call", "ms per call"],
        rows=[[name, f"{one['median']:.3f}"] for name, one in data.items()],
        data={"finished": finished, "milliseconds": data},
        draw=lambda axes: _draw(axes, data),
        targets=[_target(name, data) for name in ("stats", "audit of one message")],
    )


def _finish(peer: PenstockQueue, count: int) -> list[str]:
    """Process this many messages; returns some of their ids."""
    ids = []
    for start in range(0, count, FILL):
        sent = peer.queue.send_many([payload(number) for number in range(start, start + FILL)])
        peer.queue.ack_many(peer.queue.receive(limit=FILL))
        ids += sent[::100]
    return ids


def _milliseconds(call: Callable[[], object]) -> list[float]:
    call()
    costs = []
    for _ in range(CALLS):
        began = time.perf_counter()
        call()
        costs.append((time.perf_counter() - began) * 1e3)
    return costs


def _target(name: str, data: dict[str, Any]) -> Target:
    median = data[name]["median"]
    return Target(f"{name}: at most 10 ms", median, median <= 10)


def _draw(axes: Any, data: dict[str, Any]) -> None:
    axes.barh(list(data), [one["median"] for one in data.values()])
    axes.set(xscale="log", xlabel="ms per call", title="history_reads")
    axes.invert_yaxis()
