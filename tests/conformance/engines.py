"""The engines under test. A new engine adds one row."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

import penstock


class EngineRow(NamedTuple):
    """`fresh_url` names an empty store of its own for each folder it is given."""

    name: str
    fresh_url: Callable[[Path], str]


def _sqlite(folder: Path) -> str:
    return f"sqlite:///{folder / 'store.db'}"


ENGINES = (EngineRow("sqlite", _sqlite),)


def capabilities(engine: EngineRow) -> dict[str, bool]:
    """What the engine says it can do beyond the verbs."""
    with tempfile.TemporaryDirectory() as folder, penstock.connect(engine.fresh_url(Path(folder))) as store:
        flags: dict[str, bool] = msgspec.structs.asdict(store.engine.capabilities)
    return flags
