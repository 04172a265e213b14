"""These tests are about PostgreSQL alone."""

from __future__ import annotations

import pytest

from tests.conformance.engines import ENGINES, EngineRow


@pytest.fixture(params=[row for row in ENGINES if row.name == "postgres"], ids=lambda row: row.name)
def engine_row(request: pytest.FixtureRequest) -> EngineRow:
    row: EngineRow = request.param
    return row
