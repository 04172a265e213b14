"""Stores on PostgreSQL alone, with the fixtures of the conformance tests."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import chance, client_kind, clock, live_queue, open_store, queue, store, url
from tests.conformance.engines import ENGINES, EngineRow

__all__ = ["chance", "client_kind", "clock", "live_queue", "open_store", "queue", "store", "url"]


@pytest.fixture(params=[row for row in ENGINES if row.name == "postgres"], ids=lambda row: row.name)
def engine_row(request: pytest.FixtureRequest) -> EngineRow:
    row: EngineRow = request.param
    return row
