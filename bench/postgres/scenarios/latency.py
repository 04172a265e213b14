"""Latency from send to receive at a steady rate on an idle server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

from bench.finding import Finding, Target, percentile
from bench.postgres.contenders import PENSTOCK, Contender, node
from bench.postgres.field import Field, tell
from bench.postgres.lines import LINES, Line

PER_SECOND = 500
MOST_P99_MILLISECONDS = 20.0


def run(field: Field) -> Finding:
    data: dict[str, dict[str, float]] = {}
    for contender in field.contenders():
        tell(f"latency: {contender.name}")
        samples = _samples(contender, field.fresh(contender), max(field.seconds, 5.0))
        data[contender.name] = {f"p{share}": percentile(samples, share / 100) * 1000 for share in (50, 99)}
    p99 = data[PENSTOCK]["p99"]
    return Finding(
        name="latency",
        title=f"From send to receive at {PER_SECOND} messages per second, in milliseconds",
        header=["who", "p50", "p99"],
        rows=[[name, f"{one['p50']:.1f}", f"{one['p99']:.1f}"] for name, one in data.items()],
        data=data,
        draw=lambda axes: _draw(axes, data),
        targets=[Target(f"p99 below {MOST_P99_MILLISECONDS:g} ms", p99, p99 < MOST_P99_MILLISECONDS)],
        notes=["pgmq polls inside the server, every 100 ms, and pg-boss from outside, every 500 ms at best."],
    )


def _samples(contender: Contender, url: str, seconds: float) -> list[float]:
    """The first second warms up."""
    if contender.name in node.PACKAGES:
        return node.latencies(contender.name, url, seconds, PER_SECOND)[PER_SECOND:]
    line = LINES[contender.name](url)
    try:
        return _measure(line, seconds)[PER_SECOND:]
    finally:
        line.close()


def _measure(line: Line, seconds: float) -> list[float]:
    samples: list[float] = []
    over = threading.Event()

    def listen() -> None:
        while not over.is_set():
            heard = line.hear()
            now = time.perf_counter()
            samples.extend(now - sent_at for sent_at in heard)
            line.finish()

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    for due in _paced(seconds):
        line.send(due)
    over.set()
    listener.join()
    return samples


def _draw(axes: Any, data: dict[str, dict[str, float]]) -> None:
    for share in ("p99", "p50"):
        axes.bar([*data], [one[share] for one in data.values()], label=share)
    axes.set(title=f"Send to receive at {PER_SECOND} messages per second", ylabel="ms", yscale="log")
    axes.legend()


def _paced(seconds: float) -> Iterator[float]:
    began = time.perf_counter()
    for number in range(int(seconds * PER_SECOND)):
        due = began + number / PER_SECOND
        time.sleep(max(0, due - time.perf_counter()))
        yield time.perf_counter()
