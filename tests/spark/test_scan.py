"""Scan planning: parts keep their order in tasks, and a range is split once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import Store
from penstock.domain.results import Part
from penstock.spark.scan import pack
from tests.spark.lakes import run_archive
from tests.spark.stores import fill


def parts(*counts: int) -> list[Part]:
    return [Part(f"queue-{number}", (), count) for number, count in enumerate(counts)]


@pytest.mark.parametrize(
    ("counts", "rows_per_task", "most_tasks", "packed"),
    [
        ((), 10, 4, []),
        ((0, 0), 10, 4, [[0, 0]]),
        ((3, 3, 3), 10, 4, [[3, 3, 3]]),
        ((6, 6, 6, 6), 10, 4, [[6], [6], [6], [6]]),
        ((5, 5, 5, 5), 10, 4, [[5, 5], [5, 5]]),
        ((1, 30, 1, 1), 10, 4, [[1], [30], [1, 1]]),
        ((10, 10, 10, 10), 1, 2, [[10, 10], [10, 10]]),
    ],
)
def test_pack_keeps_the_order_of_parts(
    counts: tuple[int, ...], rows_per_task: int, most_tasks: int, packed: list[list[int]]
) -> None:
    given = parts(*counts)
    tasks = pack(given, rows_per_task, most_tasks)
    assert [part for task in tasks for part in task] == given
    assert [[part.count for part in task] for task in tasks] == packed


def test_archive_splits_each_range_once(
    spark: SparkSession, store: Store, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 14)
    engine: Any = store.engine
    split: Counter[tuple[Any, ...]] = Counter()
    window = engine.window

    def counting(queue: str, start: Any, end: Any, count: int, table: str = "messages") -> list[Part]:
        split[queue, start, end, table] += 1
        found: list[Part] = window(queue, start, end, count, table)
        return found

    monkeypatch.setattr(engine, "window", counting)
    run_archive(spark, store, url, tmp_path / "lake")
    assert {table for *_, table in split} == {"audit", "messages", "archive", "dead_letters"}
    assert set(split.values()) == {1}
