"""Law 11: a window read twice has the same rows, and consecutive windows have all rows."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock import Queue, Store
from penstock.engines.contract import Engine, Mark, Table
from tests.conformance.clock import Clock
from tests.conformance.conftest import POLICY
from tests.conformance.test_random_life import KINDS, Life

pytest.importorskip("pyarrow", reason="windows are read as Arrow: needs pyarrow")

READ: tuple[Table, ...] = ("messages", "audit", "archive")


def rows(engine: Engine, table: Table, start: Mark, end: Mark, parts: int = 1) -> list[dict[str, Any]]:
    return [
        row
        for part in engine.window("orders", start, end, parts, table)
        for batch in engine.read(part, 7)
        for row in batch.to_pylist()
    ]


class Reader:
    """Reads a table window by window at random times, and keeps what it read."""

    def __init__(self, queue: Queue, table: Table, chance: random.Random) -> None:
        self.engine = queue.engine
        self.table: Table = table
        self.chance = chance
        self.mark = self.engine.earliest("orders", table)
        self.read: list[tuple[Mark, Mark, list[dict[str, Any]]]] = []

    def go_on(self) -> None:
        horizon = self.engine.horizon("orders", self.table)
        end = self.engine.cut("orders", self.mark, horizon, self.chance.choice([None, 3, 20]), table=self.table)
        found = rows(self.engine, self.table, self.mark, end, self.chance.randrange(1, 4))
        self.read.append((self.mark, end, found))
        self.mark = end

    def check(self) -> None:
        while self.mark != self.engine.horizon("orders", self.table):
            self.go_on()
        for start, end, found in self.read:
            assert rows(self.engine, self.table, start, end) == found
        together = [row for _, _, found in self.read for row in found]
        everything = rows(self.engine, self.table, self.engine.earliest("orders", self.table), self.mark)
        if isinstance(self.mark, str) and "," in self.mark:
            # A queue that is spread over slots: a window has the rows of one shard after those of another.
            together, everything = sorted(together, key=repr), sorted(everything, key=repr)
        assert together == everything
        assert together


@pytest.mark.parametrize("client_kind", ["sync"], indirect=True)  # read from the engine, not through a client
@pytest.mark.parametrize("kind", KINDS)
def test_windows_stay_as_they_were_in_a_random_life(store: Store, clock: Clock, kind: str) -> None:
    queue = store.queue("orders", **{**POLICY, **KINDS[kind]})
    queue.receive(group="billing")
    life = Life(queue, clock, seed=11)
    chance = random.Random(5)
    readers = [Reader(queue, table, chance) for table in READ]
    for _ in range(15):
        life.live(6)
        for reader in readers:
            reader.go_on()
    for reader in readers:
        reader.check()
