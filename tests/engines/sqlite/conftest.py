"""Stores on SQLite alone, with the fixtures of the conformance tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.conftest import chance, client_kind, clock, live_queue, open_store, queue, store
from tests.conformance.engines import ENGINES, EngineRow

__all__ = ["chance", "client_kind", "clock", "live_queue", "open_store", "queue", "store"]


@pytest.fixture(params=[row for row in ENGINES if row.name == "sqlite"], ids=lambda row: row.name)
def engine_row(request: pytest.FixtureRequest) -> EngineRow:
    row: EngineRow = request.param
    return row


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A file that does not exist yet: these tests also create it."""
    return f"sqlite:///{tmp_path / 'store.db'}"
