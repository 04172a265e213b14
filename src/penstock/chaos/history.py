"""Histories: what each process did and saw, one JSON line per event, in a file of its own.

A call is an `invoke` event, written before the call, and an answer with the same `call` number: `ok`, `fail` (it
certainly had no effect) or `unknown` (the reply was lost). An invoke without an answer is unknown too: its process was
killed. Each event is one unbuffered write, made before the process acts on what it saw.

Times are microseconds of the machine's monotonic clock, which all processes share. The checker compares these only, so
neither a jump of the wall clock nor a server with another clock leads to a false alarm.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]
SUFFIX = ".jsonl"


def clock() -> int:
    return time.monotonic_ns() // 1000


class Recorder:
    """Appends the events of one process; its threads may share it."""

    def __init__(self, folder: Path, process: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self.process = process
        self._file = os.open(folder / f"{process}{SUFFIX}", flags, 0o600)
        self._calls = itertools.count(1)
        self._lock = threading.Lock()

    def invoke(self, op: str, **fields: Any) -> int:
        call = next(self._calls)
        self._write(op, "invoke", call, fields)
        return call

    def answer(self, op: str, kind: str, call: int, **fields: Any) -> None:
        self._write(op, kind, call, fields)

    def note(self, op: str, **fields: Any) -> None:
        """Record an observation that is not a call."""
        self._write(op, "ok", next(self._calls), fields)

    def _write(self, op: str, kind: str, call: int, fields: dict[str, Any]) -> None:
        with self._lock:
            event: Event = {"process": self.process, "call": call, "t": clock(), "op": op, "type": kind, **fields}
            os.write(self._file, json.dumps(event, separators=(",", ":")).encode() + b"\n")


def read(folder: Path) -> list[Event]:
    """The events of all processes by time. An incomplete last line, left by a kill, is skipped."""
    events = [event for path in sorted(folder.glob(f"*{SUFFIX}")) for event in _whole(path.read_bytes().split(b"\n"))]
    events.sort(key=lambda event: event["t"])
    return events


def _whole(lines: Iterable[bytes]) -> Iterator[Event]:
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            continue
