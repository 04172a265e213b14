"""Law 10: the same script gives the same result on every engine."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

import penstock
from tests.conformance.clock import Clock
from tests.conformance.conftest import POLICY
from tests.conformance.engines import ENGINES, EVERY_ENGINE_MARKED, EngineRow
from tests.model.walk import Side, Walk
from tests.seeds import choose_seed, is_random, walks

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "sharded": {"shards": 3},
    "ordered": {"shards": 3, "ordered": True},
    "at most once": {"delivery": "at_most_once"},
}
STEPS = 70


@pytest.mark.parametrize("turn", range(walks(6)))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", EVERY_ENGINE_MARKED[1:], ids=lambda row: row.name)
def test_a_random_walk_is_the_same_on_both_engines(other: EngineRow, kind: str, turn: int, tmp_path: Path) -> None:
    seed = choose_seed() if is_random() else turn
    clock, policy = Clock(), {**POLICY, **KINDS[kind], "backoff_jitter_seconds": 0}
    stores = []
    for row in (ENGINES[0], other):
        folder = tmp_path / row.name
        folder.mkdir()
        url = row.fresh_url(folder)
        stores.append(penstock.connect(url, clock=clock, random=Random(7).random, **row.settings(url)))
    try:
        left, right = (Side(store, policy) for store in stores)
        walk = Walk(left, right, clock, seed)
        walk.live(STEPS)
        walk.compare_trails()
    finally:
        for store in stores:
            store.close()
