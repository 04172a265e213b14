"""Limits of the Python calls that the servers make per message, without the engine."""

from __future__ import annotations

from pathlib import Path

from bench.calls import measure

MAX_CALLS = {"QADD": 60, "QGET": 60, "QACK": 60}


def test_hot_commands_make_few_calls(tmp_path: Path) -> None:
    found = measure(f"sqlite:///{tmp_path}/calls.db")
    outside = {
        request: sum(count for (file, _), count in found[request].items() if "/penstock/engines/" not in file)
        for request in MAX_CALLS
    }
    assert {request: count for request, count in outside.items() if count > MAX_CALLS[request]} == {}
