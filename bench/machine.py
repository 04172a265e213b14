"""The machine of the measurement."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import apsw

PAGE = 4096
PACKAGES = ("penstock-queue", "huey", "litequeue", "persist-queue", "apsw")


def describe(folder: Path) -> dict[str, Any]:
    return {
        **surroundings(folder),
        "sqlite_of_penstock": apsw.sqlite_lib_version(),
        "sqlite_of_peers": sqlite3.sqlite_version,
        "packages": {name: metadata.version(name) for name in PACKAGES},
    }


def surroundings(folder: Path) -> dict[str, Any]:
    """Properties that matter to every benchmark."""
    return {
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "fsync_microseconds": fsync_microseconds(folder),
    }


def fsync_microseconds(folder: Path) -> dict[str, float]:
    """The cost of a durable write of one page, over old data and at the end of a growing file. It bounds all
    contenders."""
    path = folder / "fsync"
    sync = getattr(os, "fdatasync", os.fsync)  # as SQLite does: without the time of the change, where that is possible
    costs: dict[str, list[float]] = {"over": [], "growing": []}
    with path.open("w+b", buffering=0) as file:
        file.write(bytes(PAGE))
        for _ in range(50):
            for kind, samples in costs.items():
                file.seek(0, os.SEEK_SET if kind == "over" else os.SEEK_END)
                file.write(bytes(PAGE))
                began = time.perf_counter()
                sync(file.fileno())
                samples.append((time.perf_counter() - began) * 1e6)
    path.unlink()
    return {kind: statistics.median(samples) for kind, samples in costs.items()}
