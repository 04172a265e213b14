"""Resources of a run: memory, file descriptors and threads of the server process, and the size of the store. They must
not grow during the run."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from penstock.chaos.address import engine_of
from penstock.chaos.serve_process import ServeProcess

# Samples that are needed: the first third after the start is compared with the last one.
MIN_SAMPLES = 30
ALLOWED_GROWTH = {"memory_mb": 1.25, "descriptors": 1.25, "threads": 1.25, "store_mb": 1.5}
ALLOWED_EXTRA = {"memory_mb": 20.0, "descriptors": 20.0, "threads": 4.0, "store_mb": 8.0}


class Watch:
    def __init__(self, url: str, serve_process: ServeProcess | None) -> None:
        self._url = url
        self._serve_process = serve_process
        self._began = time.monotonic()
        self._next = 0.0
        self.samples: list[dict[str, float]] = []

    def sample(self, every_seconds: float) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + every_seconds
        sample = {"seconds": round(now - self._began, 1), "store_mb": self._store_bytes() / 1e6}
        if self._serve_process is not None:
            sample.update(_used(self._serve_process.pid))
        self.samples.append(sample)

    def growth(self) -> list[str]:
        """Growth from the first third of the samples to the last one, beyond noise."""
        if len(self.samples) < MIN_SAMPLES:
            return []
        third = len(self.samples) // 3
        found = []
        for name, factor in ALLOWED_GROWTH.items():
            if name in self.samples[0]:
                first = statistics.median(one[name] for one in self.samples[:third] if name in one)
                last = statistics.median(one[name] for one in self.samples[-third:] if name in one)
                if last > first * factor + ALLOWED_EXTRA[name]:
                    found.append(f"{name} grew from {first:.1f} to {last:.1f}")
        return found

    def _store_bytes(self) -> int:
        engine = engine_of(self._url)
        if engine != "sqlite":
            return _postgres_bytes(self._url) if engine == "postgres" else 0
        path = Path(self._url.removeprefix("sqlite:///"))
        return sum(one.stat().st_size for one in (path, Path(f"{path}-wal")) if one.exists())


def _postgres_bytes(url: str) -> int:
    import psycopg

    try:
        with psycopg.connect(url, connect_timeout=5) as connection:
            row = connection.execute("select pg_database_size(current_database())").fetchone()
            return 0 if row is None else int(row[0])
    except psycopg.Error:
        return 0  # the server is being crashed


def _used(pid: int) -> dict[str, float]:
    """Resources of a process, on Linux only."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        return {
            "memory_mb": int(fields["VmRSS"].split()[0]) / 1000,
            "threads": int(fields["Threads"]),
            "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        }
    except (OSError, KeyError, ValueError):
        return {}
