"""Before measuring: work until the write-ahead log has its size.

While that file grows, the system must write down its new length with every fsync, which costs more than the data alone.
Once it has its size it is written over again and again, which is what a program that runs for more than a few seconds
sees.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

STEADY_FOR = 20
AT_MOST = 5_000


def warm(folder: Path, work: Callable[[], object]) -> None:
    size, steady = -1, 0
    for _ in range(AT_MOST):
        work()
        latest = sum(file.stat().st_size for file in folder.rglob("*-wal"))
        steady = steady + 1 if latest == size else 0
        size = latest
        if steady == STEADY_FOR:
            return
    raise RuntimeError(f"the write-ahead log in {folder} still grows after {AT_MOST} units of work")
