from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.cli_runner import Cli


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    for name in ("PENSTOCK_URL", "PENSTOCK_CONFIG", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return Cli(tmp_path)
