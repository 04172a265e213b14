"""How many messages per second are durably sent, got and acknowledged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.finding import spread
from bench.redis_streams.contenders import REDIS, Contender

CONNECTIONS = 50
PIPELINES = (1, 16)


def measure(contenders: Sequence[Contender], rounds: int, seconds: float) -> dict[str, Any]:
    """Contenders take turns; a ratio compares two of the same round, under the same load."""
    return {str(pipeline): _pipeline(contenders, rounds, seconds, pipeline) for pipeline in PIPELINES}


def _pipeline(contenders: Sequence[Contender], rounds: int, seconds: float, pipeline: int) -> dict[str, Any]:
    samples: dict[str, list[dict[str, float]]] = {contender.name: [] for contender in contenders}
    for number in range(rounds):
        # Every other round runs in reverse order, so that neighbours change.
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            samples[contender.name].append(_sample(contender, seconds, pipeline))
    redis = [sample["rate"] for sample in samples[REDIS]]
    return {
        name: {
            "rate": spread([sample["rate"] for sample in own]),
            "ratio": spread([sample["rate"] / theirs for sample, theirs in zip(own, redis, strict=True)]),
            "server_cores": spread([sample["server_cores"] for sample in own]),
            # What a message costs the server's processor: the ceiling of one core, whatever else the machine does.
            "server_microseconds": spread([1e6 * sample["server_cores"] / sample["rate"] for sample in own]),
            "load_cores": spread([sample["load_cores"] for sample in own]),
        }
        for name, own in samples.items()
    }


def _sample(contender: Contender, seconds: float, pipeline: int) -> dict[str, float]:
    before = contender.server.cpu_seconds()
    told = contender.load("cycles", CONNECTIONS, pipeline, seconds)
    used = contender.server.cpu_seconds() - before
    rate = told["messages"] / told["seconds"]
    # The warm-up is half a second of the same work.
    return {"rate": rate, "server_cores": used / (told["seconds"] + 0.5), "load_cores": told["load_cores"]}


def lone_sends(contenders: Sequence[Contender], rounds: int, count: int) -> dict[str, Any]:
    """How long one send takes when nothing else is going on, in milliseconds."""
    taken: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for _ in range(rounds):
        for contender in contenders:
            taken[contender.name] += contender.load("lone", count)["milliseconds"]
    return taken
