"""The cost of a long receive on an idle queue, and the latency of the wake-up by another process."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from typing import Any

import penstock
from bench.finding import Finding, Target, percentile
from bench.plan import Plan
from bench.waiter import DONE, READY

IDLE_SECONDS = 10.0


def run(plan: Plan) -> Finding:
    url = f"sqlite:///{plan.place('idle') / 'penstock.db'}"
    sends = 30 if plan.quick else 300
    with penstock.connect(url) as store:
        queue = store.queue("bench")
        # A process of its own, as a worker is: within one process a wake-up needs no file.
        waiter = subprocess.Popen(
            [sys.executable, "-m", "bench.waiter", url, str(IDLE_SECONDS)], stdout=subprocess.PIPE, text=True
        )
        assert waiter.stdout is not None
        with waiter:
            idle = json.loads(waiter.stdout.readline())
            assert waiter.stdout.readline().strip() == READY
            sent = _send(queue, sends)
            received = json.loads(waiter.stdout.readline())
    latencies = [(received[message_id] - at) / 1e6 for message_id, at in sent.items()]
    share = 100 * idle["cpu_seconds"] / idle["seconds"]
    data = {"cpu_percent": share, "latency_ms": latencies}
    middle, late = percentile(latencies, 0.5), percentile(latencies, 0.99)
    return Finding(
        name="idle",
        title="A receive that waits, in a process of its own",
        header=["what", "measured"],
        rows=[
            [f"CPU while nothing comes for {idle['seconds']:.0f} s", f"{share:.2f} % of a core"],
            [f"from another process's commit to the delivery, median of {sends}", f"{middle:.1f} ms"],
            ["the same, 99 of 100", f"{late:.1f} ms"],
        ],
        data=data,
        draw=lambda axes: _draw(axes, latencies),
        targets=[Target("less than 1 % of a core while waiting", share, share < 1)],
    )


def _send(queue: penstock.Queue, count: int) -> dict[str, int]:
    """When each send had returned. The pauses vary, so that sends meet every moment between two looks at the file."""
    sent = {}
    for _ in range(count):
        time.sleep(random.uniform(0.02, 0.06))
        message_id = queue.send(b"wake up")
        sent[message_id] = time.monotonic_ns()
    queue.send(DONE.encode())
    return sent


def _draw(axes: Any, latencies: list[float]) -> None:
    axes.hist(latencies, bins=30)
    axes.set(xlabel="ms from commit to delivery", ylabel="messages", title="wake-up of another process")
