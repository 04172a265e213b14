"""Law 14: a call that was cut at any of its statements leaves nothing behind, and works when it is made again.

SQLite is interrupted after every few instructions; PostgreSQL cancels the call, or lets it run into a lock timeout,
before and after each statement that writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

import penstock
from penstock import PenstockError
from tests.conformance.clock import Clock
from tests.conformance.engines import ENGINES, EngineRow
from tests.faults.cut_statements import Cutter, cut_triggers, interrupts
from tests.faults.verb_calls import CALLS, Scene, drain, prepare, seen

SQLITE = ENGINES[0]
# A sweep commits in parts: those of an interrupted sweep stay, and the next one does the rest.
PIECEWISE = ("sweep",)


@pytest.mark.parametrize("row", ENGINES, ids=lambda row: row.name)
@pytest.mark.parametrize("verb", CALLS)
def test_a_call_cut_at_any_statement_leaves_nothing_and_works_when_repeated(
    row: EngineRow, verb: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    call, folder = CALLS[verb], tmp_path_factory.mktemp("store")
    with scene(row, folder) as (one, cutter, clock):
        before, cuts = cutter.content(), 0
        points = ((at, way) for at in itertools.count(1) for way in cutter.ways)
        while is_cut(cutter, *(point := next(points)), lambda: call(one)):
            cuts += 1
            assert verb in PIECEWISE or cutter.content() == before, f"{verb} cut at {point} left something behind"
        assert cuts > 0, f"{verb} was never cut"
        found = seen(one.store), drain(one.store, clock)
    assert found == uncut(verb), f"{verb} after {cuts} cut calls"


def is_cut(cutter: Cutter, at: int, way: str, call: Callable[[], object]) -> bool:
    """Make a call, and say whether it was cut. One that gives way to others takes a lock timeout for an answer: it
    returns without having found anything to do."""
    cutter.arm(at, way)
    with suppress(PenstockError):
        call()
    reached = cutter.reached()
    cutter.arm(None, way)
    return reached >= at


def uncut(verb: str) -> Any:
    """The result without a cut, the same on all engines."""
    clock = Clock()
    with penstock.connect("sqlite:///:memory:", clock=clock, random=Random(7).random) as store:
        CALLS[verb](prepare(store, clock))
        return seen(store), drain(store, clock)


@contextmanager
def scene(row: EngineRow, folder: Path) -> Iterator[tuple[Scene, Cutter, Clock]]:
    url, clock = row.fresh_url(folder), Clock()
    with ExitStack() as stack:
        cutter: Cutter | None = stack.enter_context(interrupts(url)) if row is SQLITE else None
        settings = {"clock": clock, "random": Random(7).random, **row.settings(url)}
        store = stack.enter_context(penstock.connect(url, **settings))
        ready = prepare(store, clock)
        yield ready, cutter or stack.enter_context(cut_triggers(url)), clock
