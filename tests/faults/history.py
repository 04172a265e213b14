"""What each process did, one JSON line per step, in a file of its own.

A step is written before the process acts on it, with one unbuffered write: a killed process hides nothing that it
already knew. `invoke` is written before a call, `ok` or `refused` after it; an `invoke` without an answer is unknown.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Step = dict[str, Any]


def engine_time() -> int:
    """The clock that the stores of these tests run on."""
    return time.time_ns() // 1000


class Writer:
    def __init__(self, path: Path, process: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._process = process
        self._count = 0

    def write(self, op: str, type: str, **fields: Any) -> Step:
        self._count += 1
        step: Step = {"process": self._process, "n": self._count, "t": engine_time(), "op": op, "type": type, **fields}
        os.write(self._file, json.dumps(step).encode() + b"\n")
        return step


def read(folder: Path) -> list[Step]:
    """All steps of all processes, in the order of the clock; a last line cut by a kill is left out."""
    steps: list[Step] = []
    for path in sorted(folder.glob("*.jsonl")):
        steps += _whole_lines(path.read_bytes().split(b"\n"))
    return sorted(steps, key=lambda step: (step["t"], step["process"], step["n"]))


def _whole_lines(lines: Iterable[bytes]) -> Iterator[Step]:
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            continue
