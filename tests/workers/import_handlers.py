"""Handlers whose module behaves differently when a child process imports it."""

from __future__ import annotations

import multiprocessing
import os
import re
import time
from pathlib import Path

import penstock

FOLDER = Path(os.environ.get("STARTING_FOLDER", "/nonexistent"))

if multiprocessing.parent_process() is not None:
    if (FOLDER / "broken").exists():
        raise ImportError("libfoo.so is not there")
    if (FOLDER / "slow").exists():
        (FOLDER / f"importing-{os.getpid()}").touch()
        while (FOLDER / "slow").exists():
            time.sleep(0.02)

app = penstock.App()


@app.handler("work", run="process", concurrency=2)
def handle(delivery: penstock.Delivery) -> None:
    do = delivery.json()
    if do == "wait":
        (FOLDER / f"began-{os.getpid()}").touch()
        while not (FOLDER / "go").exists():
            time.sleep(0.02)
    if do == "hold the lock":
        (FOLDER / f"began-{os.getpid()}").touch()
        re.match(r"(a+)+$", "a" * 40 + "b")
