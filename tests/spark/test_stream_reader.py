"""The streaming source as Spark's driver calls it: offsets, limits, groups and errors."""

from __future__ import annotations

import json
import pickle
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

import penstock
from penstock import GroupMisused, InvalidInput, LogDiverged, Queue, RangeTrimmed, Store
from penstock.domain.errors import NotFound
from penstock.engines.contract import Mark
from penstock.spark.source import PenstockSource, StreamReader
from tests.conformance.clock import Clock
from tests.conformance.engines import EngineRow
from tests.spark.source_frames import rows_between, stream_reader


@pytest.fixture
def queue(store: Store) -> Queue:
    return store.queue("orders")


def latest(reader: StreamReader, start: dict[str, Any], limit: Any = None) -> dict[str, Any]:
    return reader.latestOffset(start, limit or reader.getDefaultReadLimit())


def payloads(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    return [row["payload"] for row in rows_between(reader, start, end)]


def test_stream_reads_every_message_once(queue: Queue, url: str) -> None:
    queue.send_many([1, 2, 3])
    reader = stream_reader(url)
    start = reader.initialOffset()
    first = latest(reader, start)
    assert payloads(reader, start, first) == [b"1", b"2", b"3"]
    queue.send(4)
    second = latest(reader, first)
    assert payloads(reader, first, second) == [b"4"]
    assert latest(reader, second) == second
    assert reader.partitions(second, second) == []


def test_writes_to_other_queues_are_not_new_data(queue: Queue, store: Store, url: str) -> None:
    """Spark would run an empty batch for every offset that differs."""
    queue.send(1)
    reader = stream_reader(url)
    offset = latest(reader, reader.initialOffset())
    store.queue("other").send_many([1, 2])
    assert latest(reader, offset) == offset


def test_offsets_are_written_in_a_fixed_order(queue: Queue, store: Store, url: str) -> None:
    store.queue("a").send(1)
    queue.send(1)
    reader = stream_reader(url, '["orders", "a"]')
    offset = latest(reader, reader.initialOffset())
    again = latest(reader, json.loads(json.dumps(offset)))
    assert json.dumps(offset) == json.dumps(again)
    assert list(offset["queues"]) == ["a", "orders"]


def test_rows_and_bytes_limit_a_trigger(queue: Queue, url: str) -> None:
    queue.send_many([b"x" * 100] * 10)
    reader = stream_reader(url, maxRowsPerTrigger=4)
    assert reader.getDefaultReadLimit() == ReadMaxRows(4)
    start = reader.initialOffset()
    assert len(payloads(reader, start, latest(reader, start))) == 4
    assert len(payloads(reader, start, latest(reader, start, ReadAllAvailable()))) == 10
    both = stream_reader(url, maxRowsPerTrigger=4, maxBytesPerTrigger=250)
    assert len(payloads(both, start, latest(both, start))) == 2
    size = stream_reader(url, maxBytesPerTrigger=1)
    assert size.getDefaultReadLimit() == ReadMaxBytes(1)
    assert len(payloads(size, start, latest(size, start))) == 1


def test_available_now_stops_at_the_end_of_the_log_at_start(queue: Queue, url: str) -> None:
    queue.send_many([1, 2, 3])
    reader = stream_reader(url, maxRowsPerTrigger=2)
    reader.prepareForTriggerAvailableNow()
    offset = reader.initialOffset()
    queue.send_many([4, 5, 6])
    seen = []
    while (end := latest(reader, offset)) != offset:
        seen += payloads(reader, offset, end)
        offset = end
    assert seen == [b"1", b"2", b"3"]
    assert reader.reportLatestOffset() == offset


def test_latest_offset_reports_the_end_of_the_log(queue: Queue, url: str) -> None:
    queue.send_many([1, 2, 3])
    reader = stream_reader(url, maxRowsPerTrigger=1)
    assert reader.reportLatestOffset() is None
    end = latest(reader, reader.initialOffset())
    report = reader.reportLatestOffset()
    assert report is not None
    assert report["queues"]["orders"] != end["queues"]["orders"]
    assert rows_between(reader, end, report) == rows_between(reader, end, report)
    assert len(rows_between(reader, end, report)) == 2


def test_the_group_shows_its_lag_and_goes_on_where_it_stands(queue: Queue, url: str) -> None:
    queue.send_many([1, 2, 3])
    reader = stream_reader(url, group="lake", maxRowsPerTrigger=2)
    start = reader.initialOffset()
    assert queue.stats("lake").lag == 3
    first = latest(reader, start)
    assert queue.stats("lake").lag == 3
    second = latest(reader, first)
    assert queue.stats("lake").lag == 1
    reader.commit(second)
    assert queue.stats("lake").lag == 0
    assert stream_reader(url, group="lake").initialOffset() == second
    assert stream_reader(url, group="lake", startingPosition="start").initialOffset() == start


def test_a_group_that_workers_use_is_refused(queue: Queue, url: str) -> None:
    queue.send(1)
    queue.receive(group="workers")
    for group in ("default", "workers"):
        with pytest.raises(GroupMisused, match=group):
            stream_reader(url, group=group).initialOffset()


def test_several_queues_share_a_trigger(store: Store, url: str) -> None:
    for name in ("a", "b"):
        store.queue(name).send_many([name + str(number) for number in range(5)])
    reader = stream_reader(url, "a, b", maxRowsPerTrigger=6)
    start = reader.initialOffset()
    rows = rows_between(reader, start, latest(reader, start))
    assert sorted(row["queue"] for row in rows) == ["a"] * 3 + ["b"] * 3


def test_a_pattern_finds_queues_that_come_later(store: Store, url: str) -> None:
    store.queue("eu-orders").send(1)
    store.queue("misc").send(2)
    reader = stream_reader(url, "*-orders")
    start = reader.initialOffset()
    first = latest(reader, start)
    assert payloads(reader, start, first) == [b"1"]
    store.queue("us-orders").send(3)
    second = latest(reader, first)
    third = latest(reader, second)
    assert payloads(reader, first, second) + payloads(reader, second, third) == [b"3"]
    assert latest(reader, third) == third


def test_a_queue_whose_name_looks_like_a_pattern_is_itself(store: Store, url: str) -> None:
    store.queue("a*").send(1)
    store.queue("ab").send(2)
    reader = stream_reader(url, "a*")
    start = reader.initialOffset()
    assert list(start["queues"]) == ["a*"]
    assert payloads(reader, start, latest(reader, start)) == [b"1"]


@pytest.mark.parametrize("name", ["ordres", "orders, ordres", '["ordres"]', "ordre*"])
def test_a_missing_queue_is_named_before_work_starts(queue: Queue, url: str, name: str) -> None:
    queue.send(1)
    with pytest.raises(NotFound, match="ordre"):
        PenstockSource({"url": url, "queue": name}).schema()


def test_a_checkpoint_of_another_store_queue_or_table_is_refused(
    queue: Queue, url: str, tmp_path: Path, engine_row: EngineRow
) -> None:
    queue.send(1)
    reader = stream_reader(url)
    offset = reader.initialOffset()
    (tmp_path / "other").mkdir()
    other_url = engine_row.fresh_url(tmp_path / "other")
    other = penstock.connect(other_url)
    other.queue("orders").send(1)
    queue.store.queue("returns").send(1)
    for stranger, said in (
        (stream_reader(other_url), "another store"),
        (stream_reader(url, "returns"), "belongs to queue"),
        (stream_reader(url, "orders,returns"), "belongs to queue"),
        (stream_reader(url, table="archive"), "belongs to the table"),
    ):
        with pytest.raises(InvalidInput, match=said):
            latest(stranger, offset)
        with pytest.raises(InvalidInput, match=said):
            stranger.partitions(offset, offset)
    with pytest.raises(InvalidInput, match="no offsets of Penstock"):
        latest(reader, {"partition": 3})
    other.close()


def trimmed(url: str) -> Queue:
    """Three of four messages are past retention."""
    clock = Clock()
    store = penstock.connect(url, clock=clock)
    queue = store.queue("orders", history_seconds=100)
    queue.send_many([1, 2, 3])
    queue.ack_many(queue.receive(limit=3))
    store.sweep()
    clock.advance(seconds=1_000)
    assert store.sweep().trimmed == 3
    queue.send(4)
    return queue


def test_a_trimmed_range_is_refused_with_what_to_do(url: str) -> None:
    trimmed(url)
    reader = stream_reader(url)
    end = latest(reader, reader.initialOffset())
    start = {**end, "queues": {"orders": 0}}
    with pytest.raises(RangeTrimmed, match=r"past retention.* failOnDataLoss"):
        reader.partitions(start, end)
    careless = stream_reader(url, failOnDataLoss="false")
    assert payloads(careless, start, latest(careless, start)) == [b"4"]


def test_positions_of_words_times_and_marks(url: str) -> None:
    clock = Clock()
    queue = penstock.connect(url, clock=clock).queue("orders")
    queue.send("early")
    clock.advance(seconds=60)
    moment = clock.now
    clock.advance(seconds=60)
    queue.send("late")
    for position, expected in (
        ("start", [b'"early"', b'"late"']),
        (moment.isoformat(), [b'"late"']),
        ("end", []),
        (json.dumps({"orders": queue.engine.cut("orders", *_ends(queue), 1)}), [b'"late"']),
    ):
        reader = stream_reader(url, startingPosition=position)
        start = reader.initialOffset()
        assert payloads(reader, start, latest(reader, start)) == expected
    with pytest.raises(InvalidInput, match="no mark"):
        stream_reader(url, startingPosition='{"other": 1}').initialOffset()


def _ends(queue: Queue) -> tuple[Mark, Mark]:
    return queue.engine.earliest("orders"), queue.engine.horizon("orders")


def test_a_stream_of_the_archive_follows_the_trail(queue: Queue, url: str) -> None:
    queue.send_many([1, 2, 3])
    queue.ack_many(queue.receive(limit=2))
    reader = stream_reader(url, table="archive", group="lake", columns="id,outcome,payload")
    start = reader.initialOffset()
    end = latest(reader, start)
    assert [row["outcome"] for row in rows_between(reader, start, end)] == ["succeeded"] * 2
    reader.commit(end)
    assert queue.stats("lake").lag == 0


def test_tables_without_streams_are_refused(queue: Queue, url: str) -> None:
    queue.send(1)
    with pytest.raises(InvalidInput, match=r"not spark\.readStream"):
        stream_reader(url, table="dead_letters")
    with pytest.raises(InvalidInput, match="availableNow"):
        stream_reader(url, endingPosition="2026-11-15T10:30:00Z")


def test_tasks_are_few_for_few_rows_and_many_when_asked_for(store: Store, queue: Queue, url: str) -> None:
    queue.send_many(list(range(100)))
    for name in ("a", "b", "c"):
        store.queue(name).send(name)
    few = stream_reader(url, "*")
    start = few.initialOffset()
    assert len(few.partitions(start, latest(few, start))) == 1
    many = stream_reader(url, "*", minPartitions=4)
    tasks = many.partitions(start, latest(many, start))
    assert len(tasks) >= 4
    rows = [row for task in tasks for batch in many.read(task) for row in batch.to_pylist()]
    assert len({row["id"] for row in rows}) == len(rows) == 103


def test_the_reader_goes_to_executors_without_its_connection(queue: Queue, url: str) -> None:
    queue.send(1)
    reader = stream_reader(url)
    start = reader.initialOffset()
    tasks = pickle.loads(pickle.dumps(reader.partitions(start, latest(reader, start))))
    copy = pickle.loads(pickle.dumps(reader))
    assert [batch.num_rows for task in tasks for batch in copy.read(task)] == [1]
    assert "sqlite" not in repr(tasks)


@pytest.mark.parametrize("options", [{}, {"group": "lake"}, {"group": "lake", "failOnDataLoss": "false"}])
def test_law_8_a_stream_is_refused_after_a_restore_and_told_where_to_go_on(
    tmp_path: Path, options: dict[str, str]
) -> None:
    """Also when the log has grown past the mark, and when loss is accepted: continuing would skip messages."""
    url = f"sqlite:///{tmp_path}/restored.db"
    with penstock.connect(url) as store:
        queue = store.queue("orders")
        queue.send_many([1, 2])
        first = stream_reader(url, **options)
        start = first.initialOffset()
        middle = latest(first, start)
        first.commit(middle)
        copied(tmp_path / "restored.db", tmp_path / "copy.db")
        queue.send_many([3, 4, 5])
        end = latest(first, middle)
        assert payloads(first, middle, end) == [b"3", b"4", b"5"]
        first.commit(end)
        copied(tmp_path / "copy.db", tmp_path / "restored.db")
        for count in (1, 9):
            queue.send_many(["new"] * count)
            reader = stream_reader(url, **options)
            with pytest.raises(LogDiverged, match="startingPosition"):
                latest(reader, end)
            with pytest.raises(LogDiverged, match="startingPosition"):
                reader.partitions(middle, end)  # a batch planned earlier
        if options:
            again = stream_reader(url, **options, startingPosition="group")
            start = again.initialOffset()
            assert payloads(again, start, latest(again, start)) == [b'"new"'] * 10


def copied(source: Path, target: Path) -> None:
    with closing(apsw.Connection(str(source))) as there, closing(apsw.Connection(str(target))) as here:
        with here.backup("main", there, "main") as backup:
            backup.step()
