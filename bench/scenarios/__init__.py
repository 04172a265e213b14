"""The scenarios, one file each: a function from a plan to a finding."""

from __future__ import annotations

from collections.abc import Callable

from bench.finding import Finding
from bench.plan import Plan
from bench.scenarios import flatness, history_reads, idle, lifecycle, many_tasks

SCENARIOS: dict[str, Callable[[Plan], Finding]] = {
    "lifecycle": lifecycle.run,
    "flatness": flatness.run,
    "many_tasks": many_tasks.run,
    "idle": idle.run,
    "history_reads": history_reads.run,
}
