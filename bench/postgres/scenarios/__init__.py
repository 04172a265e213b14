"""The scenarios."""

from __future__ import annotations

from collections.abc import Callable

from bench.finding import Finding
from bench.postgres.field import Field
from bench.postgres.scenarios import backlog, flow, footprint, handlers, held, latency, retention

SCENARIOS: dict[str, Callable[[Field], Finding]] = {
    "send": flow.send,
    "drain": flow.drain,
    "end_to_end": flow.end_to_end,
    "held": held.run,
    "backlog": backlog.run,
    "handlers": handlers.run,
    "latency": latency.run,
    "footprint": footprint.run,
    "retention": retention.run,
}
