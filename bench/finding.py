"""The result of a scenario: numbers, a table, and the comparison with its targets."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Target:
    """A target, and the measured value."""

    text: str
    measured: float
    is_met: bool


@dataclass(frozen=True)
class Finding:
    name: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    data: dict[str, Any]
    draw: Callable[[Any], None]
    targets: Sequence[Target] = ()
    notes: Sequence[str] = field(default=())


def spread(samples: Sequence[float]) -> dict[str, Any]:
    """A median with the smallest and largest sample, which show the noise."""
    return {"median": statistics.median(samples), "low": min(samples), "high": max(samples), "samples": list(samples)}


def shown_spread(measured: dict[str, Any], style: str = ",.0f") -> str:
    return f"{measured['median']:{style}} ({measured['low']:{style}}–{measured['high']:{style}})"


def percentile(samples: Sequence[float], share: float) -> float:
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
