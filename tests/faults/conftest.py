"""Processes on a disk, on every engine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from tests.conformance.engines import ENGINES
from tests.faults.processes import Processes

# A directory on a disk, whatever `TMPDIR` is.
DISK = Path("/var/tmp")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """On a disk, where commits take long enough for a kill to interrupt them."""
    with tempfile.TemporaryDirectory(prefix="penstock-faults-", dir=DISK) as folder:
        yield Path(folder)


@pytest.fixture(params=ENGINES, ids=lambda row: row.name)
def processes(request: pytest.FixtureRequest, tmp_path: Path, seed: int) -> Iterator[Processes]:
    """Processes on a fresh store with a queue `work` of three retries."""
    with Processes(tmp_path, seed, request.param) as processes:
        with penstock.connect(processes.url) as store:
            store.queue("work", max_retries=3)
        yield processes
