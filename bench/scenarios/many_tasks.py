"""Many tasks sending at once: the asynchronous client commits for all of them together."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

import penstock
from bench.finding import Finding, Target, shown_spread, spread
from bench.peers.penstock_queue import PenstockQueue
from bench.plan import Plan, payload
from bench.rounds import ratios
from bench.warm_up import warm
from penstock.client.aio.queue import AsyncQueue

TASKS = 200
ALONE = "one blocking sender"
TOGETHER = f"{TASKS} tasks"


def run(plan: Plan) -> Finding:
    folder = plan.place("many-tasks")
    blocking = PenstockQueue(folder)
    # Both use one store in turns, so that file size and caches are the same.
    warm(folder, partial(blocking.queue.send_many, [payload(number) for number in range(100)]))
    try:
        measured = asyncio.run(_measure(plan, blocking))
    finally:
        blocking.close()
    data = {name: spread(samples) for name, samples in measured.items()}
    ratio = spread(ratios(measured, TOGETHER, ALONE))
    rows = [[name, shown_spread(one)] for name, one in data.items()]
    return Finding(
        name="many_tasks",
        title="Durable sends per second: `await queue.send(...)` in many tasks, beside one blocking sender",
        header=["who", "sends per second"],
        rows=[*rows, ["ratio", shown_spread(ratio, ",.1f")]],
        data={**data, "ratio": ratio},
        draw=lambda axes: _draw(axes, data),
        targets=[Target(f"{TASKS} tasks: at least 20 times one sender", ratio["median"], ratio["median"] >= 20)],
    )


async def _measure(plan: Plan, blocking: PenstockQueue) -> dict[str, list[float]]:
    measured: dict[str, list[float]] = {ALONE: [], TOGETHER: []}
    store = await penstock.connect_async(blocking.url)
    queue = await store.queue("bench")
    try:
        for _ in range(plan.rounds):
            measured[ALONE].append(_send_alone(blocking, plan.round_seconds))
            measured[TOGETHER].append(await _send_together(queue, plan.round_seconds))
    finally:
        await store.close()
    return measured


def _send_alone(peer: PenstockQueue, seconds: float) -> float:
    message = payload(0)
    count = 0
    began = time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        peer.queue.send(message)
        count += 1
    return count / elapsed


async def _send_together(queue: AsyncQueue, seconds: float) -> float:
    message = payload(0)
    began = time.perf_counter()

    async def send() -> int:
        count = 0
        while time.perf_counter() - began < seconds:
            await queue.send(message)
            count += 1
        return count

    counts = await asyncio.gather(*(send() for _ in range(TASKS)))
    return sum(counts) / (time.perf_counter() - began)


def _draw(axes: Any, data: dict[str, Any]) -> None:
    axes.bar(list(data), [one["median"] for one in data.values()])
    axes.set(yscale="log", ylabel="sends per second", title="group commit")
