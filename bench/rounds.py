"""Turns A B C A B C, because the load of a machine changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

Work = Callable[[], int]
"""One unit of work; how many messages it moved."""


def rates(
    contenders: Mapping[str, Work], rounds: int, round_seconds: float, tidy: Sequence[Callable[[], None]] = ()
) -> dict[str, list[float]]:
    """Messages per second of each contender in each round. Every contender works once before, and `tidy` is called
    between rounds; neither is measured."""
    for work in contenders.values():
        work()
    measured: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for tidy_up in tidy:
            tidy_up()
        for name, work in contenders.items():
            measured[name].append(_rate(work, round_seconds))
    return measured


def _rate(work: Work, seconds: float) -> float:
    """Whole units of work only, at least one."""
    moved = 0
    began = time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds or not moved:
        moved += work()
    return moved / elapsed


def ratios(measured: Mapping[str, list[float]], one: str, other: str) -> list[float]:
    """The ratio of two contenders, round by round."""
    return [left / right for left, right in zip(measured[one], measured[other], strict=True)]
