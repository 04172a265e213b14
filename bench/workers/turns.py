"""One turn of one worker, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys


def run_turn(engine: str, name: str, place: str, count: int) -> dict[str, float]:
    words = [sys.executable, "-m", "bench.workers.contenders", engine, name, place, str(count)]
    answer = subprocess.run(words, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise SystemExit(f"{name} on {engine} failed:\n{answer.stderr}")
    report: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return report
