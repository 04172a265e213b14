"""Processor time of processes, which varies less than rates on a busy machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import psycopg


class Meter:
    """Processor seconds of processes and of the children that they have waited for; with `has_children`, of those that
    they have now as well."""

    def __init__(self, processes: Sequence[int], has_children: bool = False) -> None:
        self._processes = processes
        self._has_children = has_children

    def read(self) -> float:
        ticks = 0
        for process in (*self._processes, *(_children(self._processes) if self._has_children else ())):
            with contextlib.suppress(OSError):
                ticks += sum(int(field) for field in _fields(process)[11:15])
        return ticks / os.sysconf("SC_CLK_TCK")


def database_meter(url: str) -> Meter:
    """Of a PostgreSQL on this machine, whichever processes it has when it is read: connections come and go. It stands
    still for one elsewhere, and for SQLite, which works in the processes that use it."""
    if not url.startswith("postgres"):
        return Meter([])
    with psycopg.connect(url, autocommit=True) as connection:
        process = connection.info.backend_pid
        # The process that starts all others, and counts those that have ended.
        return Meter([int(_fields(process)[1])] if _is_postgres(process) else [], has_children=True)


def _children(parents: Sequence[int]) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if int(_fields(int(folder.name))[1]) in parents:
                    found.append(int(folder.name))
    return found


def _fields(process: int) -> list[str]:
    # The name in the second field may hold spaces: count from the bracket that closes it.
    return Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()


def _is_postgres(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/comm").read_text(encoding="ascii").strip() == "postgres"
    except OSError:
        return False
