"""Law 14: a call that was cut at any of its statements leaves nothing behind, and works when it is made again.

SQLite is interrupted after every few instructions; PostgreSQL cancels the call, or lets it run into its lock timeout or
its statement timeout, before and after each statement that writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

import penstock
from penstock import PenstockError
from tests.conformance.clock import Clock
from tests.conformance.engines import ENGINES, EngineRow
from tests.faults.cut_statements import Cutter, cut_triggers, interrupts
from tests.faults.verb_calls import CALLS, PIECEWISE, Scene, drain, prepare, seen, uncut

SQLITE = ENGINES[0]


@pytest.mark.parametrize("row", ENGINES, ids=lambda row: row.name)
@pytest.mark.parametrize("verb", CALLS)
def test_a_call_cut_at_any_statement_leaves_nothing_and_works_when_repeated(
    row: EngineRow, verb: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    call, folder = CALLS[verb], tmp_path_factory.mktemp("store")
    with scene(row, folder) as (one, cutter, clock):
        before, cuts = cutter.content(), 0
        points = ((at, way) for at in itertools.count(1) for way in cutter.ways(at))
        while is_cut(cutter, *(point := next(points)), lambda: call(one)):
            cuts += 1
            assert verb in PIECEWISE or cutter.content() == before, f"{verb} cut at {point} left something behind"
        assert cuts > 0, f"{verb} was never cut"
        found = seen(one.store), drain(one.store, clock)
    assert found == uncut(verb), f"{verb} after {cuts} cut calls"


def is_cut(cutter: Cutter, at: int, way: str, call: Callable[[], object]) -> bool:
    """Make a call, and say whether it was cut. One that gives way to others takes a lock timeout for an answer: it
    returns without having found anything to do."""
    while True:
        cutter.arm(at, way)
        has_failed = False
        try:
            call()
        except PenstockError:
            has_failed = True
        reached = cutter.reached()
        cutter.arm(None, way)
        if reached >= at or not has_failed or not cutter.be_patient():
            return reached >= at


@contextmanager
def scene(row: EngineRow, folder: Path) -> Iterator[tuple[Scene, Cutter, Clock]]:
    url, clock = row.fresh_url(folder), Clock()
    settings: dict[str, Any] = {"clock": clock, "random": Random(7).random, **row.settings(url)}
    with ExitStack() as stack:
        cutter: Cutter | None = stack.enter_context(interrupts(url)) if row is SQLITE else None
        store = stack.enter_context(penstock.connect(url, **settings))
        ready = prepare(store, clock)
        yield ready, cutter or stack.enter_context(cut_triggers(url, settings["pool"])), clock
