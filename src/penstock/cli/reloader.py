"""Restart a worker when its code changes, for development."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

POLL_SECONDS = 0.3
SKIPPED = {".git", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"}


def reload_forever(words: Sequence[str], folder: Path) -> int:
    """Run the command in a child process, and restart it when a Python file below the folder changes. Returns when the
    command exits with 0, or after Ctrl-C or SIGTERM, which reach the command first."""
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, frame: stopped.append(got))
    while True:
        before = _times(folder)
        process = subprocess.Popen([sys.executable, *words])
        while not stopped and process.poll() is None and _times(folder) == before:
            time.sleep(POLL_SECONDS)
        code = _end(process)
        if stopped:
            return code
        if code == 0 and _times(folder) == before:
            return 0
        if code != 0 and _times(folder) == before:
            print("waiting for a change before it is started again", file=sys.stderr)
            while not stopped and _times(folder) == before:
                time.sleep(POLL_SECONDS)
            if stopped:
                return code
        print("the code has changed: starting again", file=sys.stderr)


def _end(process: subprocess.Popen[bytes]) -> int:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
    return process.wait()


def _times(folder: Path) -> dict[str, int]:
    return dict(_walk(str(folder)))


def _walk(folder: str) -> Iterator[tuple[str, int]]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED:
                    yield from _walk(entry.path)
            elif entry.name.endswith(".py"):
                with contextlib.suppress(OSError):
                    yield entry.path, entry.stat().st_mtime_ns
