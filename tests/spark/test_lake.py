"""The lake: incremental runs, comparison with the store, maintenance, and its directory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

import penstock
from penstock import LakeBusy, NotALake, NotFound, RangeTrimmed, Store
from penstock.spark.lake import frames, layout
from penstock.spark.lake.compaction import compact, drop_old
from penstock.spark.lake.frames import read_table
from penstock.spark.lake.lake import SIGN, open_lake
from penstock.spark.lake.layout import queue_folder
from penstock.spark.lake.verification import verify
from penstock.spark.lifecycles import lifecycles
from tests.conformance.clock import Clock
from tests.spark.lakes import assert_same, gone_process, run_archive
from tests.spark.stores import fill


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(url: str, clock: Clock) -> Iterator[Store]:
    with penstock.connect(url, clock=clock) as store:
        yield store


def test_archive_runs_add_new_rows_until_the_lake_equals_the_store(
    spark: SparkSession, store: Store, url: str, tmp_path: Path, clock: Clock
) -> None:
    names = ["orders", "mail/ä 1", "%41", "..", "x" * 255]
    for name in names:
        fill(store, 20, name)
    first = run_archive(spark, store, url, tmp_path / "lake")
    clock.advance(seconds=17 * 3600)  # on another day; nothing is trimmed yet
    store.queue("orders").redrive()
    fill(store, 14)
    second = run_archive(spark, store, url, tmp_path / "lake")
    assert (first.window, first.queues, second.window) == (1, 5, 2)
    assert 0 < second.archive < first.archive
    lake = open_lake(spark, store.engine, str(tmp_path / "lake"))
    assert_same(spark, store, lake)
    found = {path.split("/")[2] for path in lake.manifest.files("audit")}
    assert found == {queue_folder(name) for name in names}
    assert len({path.split("/")[1] for path in lake.manifest.files("audit")}) == 2
    assert verify(spark, lake, url).ok
    third = run_archive(spark, store, url, tmp_path / "lake")
    assert (third.queues, third.audit, third.archive) == (0, 0, 0)


def test_dead_letters_are_rewritten_only_for_changed_queues(
    spark: SparkSession, store: Store, url: str, tmp_path: Path
) -> None:
    path = tmp_path / "lake"
    for name in ("orders", "quiet", "purged"):
        fill(store, 14, name)
    run_archive(spark, store, url, path)
    before = set(open_lake(spark, store.engine, str(path)).manifest.files("dead_letters"))
    fill(store, 14)
    letters = store.queue("purged").dead_letters()
    store.engine.purge("purged", "default", [letters[0].id], None, 10)
    second = run_archive(spark, store, url, path)
    lake = open_lake(spark, store.engine, str(path))
    same = before & set(lake.manifest.files("dead_letters"))
    assert {one.split("/")[2] for one in same} == {queue_folder("quiet")}
    assert second.dead_letters == sum(len(store.queue(name).dead_letters()) for name in ("orders", "quiet", "purged"))
    assert_same(spark, store, lake)


def test_compaction_keeps_every_row_and_verify_detects_damage(
    spark: SparkSession, store: Store, url: str, tmp_path: Path, clock: Clock
) -> None:
    for _ in range(3):
        fill(store, 14)
        run_archive(spark, store, url, tmp_path / "lake")
    lake = open_lake(spark, store.engine, str(tmp_path / "lake"))
    assert compact(spark, lake, small_files=3).before == 0  # the day has not ended
    clock.advance(seconds=25 * 3600)
    compacted = compact(spark, lake, small_files=3)
    assert (compacted.before, compacted.after) == (6, 2)
    assert_same(spark, store, lake)
    verdict = verify(spark, lake, url)
    assert verdict.ok
    assert all(one.rows == one.compared > 0 for one in verdict.comparisons)
    [path] = [path for path in lake.manifest.files("archive")]
    changed = read_table(spark, lake, "archive").withColumn("reason", spark_text("other")).toArrow()
    (tmp_path / "lake" / path).with_suffix(".extra").touch()
    assert [Path(one).suffix for one in verify(spark, lake, url).stray_files] == [".extra"]
    parquet.write_table(changed, tmp_path / "lake" / path)
    assert verify(spark, lake, url).missing_files == [path]


def test_files_are_not_removed_while_a_reader_is_active(
    spark: SparkSession, store: Store, url: str, tmp_path: Path, clock: Clock
) -> None:
    path = tmp_path / "lake"
    for _ in range(3):
        fill(store, 14)
        run_archive(spark, store, url, path)
    clock.advance(seconds=25 * 3600)
    with open_lake(spark, store.engine, str(path)) as lake:
        frame = read_table(spark, lake, "audit")
        count = frame.count()
        other = open_lake(spark, store.engine, str(path))
        assert compact(spark, other, small_files=3).before == drop_old(other, keep_days=1) == 0
        assert frame.count() == count
    assert compact(spark, open_lake(spark, store.engine, str(path)), small_files=3).before == 6
    read_table(spark, open_lake(spark, store.engine, str(path)), "audit")
    clock.advance(seconds=48 * 3600)  # its reader has not closed it
    assert drop_old(open_lake(spark, store.engine, str(path)), keep_days=1) > 0


@pytest.mark.parametrize("read", ["pandas", "spark", "duckdb"])
def test_other_readers_find_the_names_of_queues(
    spark: SparkSession, store: Store, url: str, tmp_path: Path, read: str
) -> None:
    names = ["orders", "2024", "0017", "a b/c=d%", "Ünïcode", "x" * 240, "__HIVE_DEFAULT_PARTITION__", "null"]
    for name in names:
        store.queue(name).send(1)
    run_archive(spark, store, url, tmp_path / "lake")
    assert set(_queues(spark, f"{tmp_path}/lake/audit", read)) == set(names)


def _queues(spark: SparkSession, path: str, read: str) -> list[str]:
    match read:
        case "pandas":
            pandas = pytest.importorskip("pandas")
            return list(pandas.read_parquet(path)["queue"])
        case "duckdb":
            duckdb = pytest.importorskip("duckdb")
            found = duckdb.execute(f"select queue from read_parquet('{path}/**/*.parquet', hive_partitioning=true)")
            return [row[0] for row in found.fetchall()]
        case _:
            return [row["queue"] for row in spark.read.parquet(path).select("queue").collect()]


def test_lake_of_the_first_layout_is_migrated(
    spark: SparkSession, store: Store, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lake"
    for name in ("orders", "mail/ä 1", "x" * 255):
        fill(store, 14, name)
    with monkeypatch.context() as patch:
        patch.setattr(frames, "queue_folder", layout._first_folder)
        run_archive(spark, store, url, path)
    sign = json.loads((path / SIGN).read_text())
    (path / SIGN).write_text(json.dumps({**sign, "version": 1}))
    assert list(path.glob("audit/day=*/queue=orders"))
    assert verify(spark, open_lake(spark, store.engine, str(path)), url).ok
    fill(store, 7)
    run_archive(spark, store, url, path)
    lake = open_lake(spark, store.engine, str(path))
    assert not list(path.glob("*/*/queue=*"))
    assert_same(spark, store, lake)
    assert verify(spark, lake, url).ok
    assert json.loads((path / SIGN).read_text())["version"] == 2


def test_late_group_has_only_messages_that_it_could_read(
    spark: SparkSession, store: Store, url: str, tmp_path: Path
) -> None:
    queue = store.queue("orders")
    queue.send_many(list(range(20)))
    queue.ack_many(queue.receive(limit=20))
    run_archive(spark, store, url, tmp_path / "lake")
    queue.trim(keep=0)
    queue.send_many(list(range(5)))
    queue.ack_many(queue.receive(limit=2, group="late"))
    run_archive(spark, store, url, tmp_path / "lake")
    audit = read_table(spark, open_lake(spark, store.engine, str(tmp_path / "lake")), "audit")
    found = lifecycles(audit).groupBy("group", "state").count().collect()
    assert {(row["group"], row["state"]): row["count"] for row in found} == {
        ("default", "succeeded"): 20,
        ("default", "ready"): 5,
        ("late", "succeeded"): 2,
        ("late", "ready"): 3,
    }
    assert queue.stats("late").available == 3


def test_members_of_a_batch_are_held_until_it_starts(
    spark: SparkSession, store: Store, url: str, tmp_path: Path, clock: Clock
) -> None:
    queue = store.queue("orders")
    batch = queue.batch("nightly")
    member = batch.send(1)
    clock.advance(seconds=30)
    batch.start()
    late = batch.send(2)
    clock.advance(seconds=2)
    queue.ack_many(queue.receive(limit=2))
    run_archive(spark, store, url, tmp_path / "lake")
    lake = open_lake(spark, store.engine, str(tmp_path / "lake"))
    audit = read_table(spark, lake, "audit")
    sends = {row["id"]: row["state"] for row in audit.where("event = 'send'").collect()}
    assert sends == {id: str(queue.audit(id)[0].state) for id in (member, late)} == {member: "held", late: "ready"}
    waited = {row["id"]: row["waited_seconds"] for row in lifecycles(audit).collect()}
    assert waited == {member: pytest.approx(2), late: pytest.approx(2)}


def spark_text(text: str) -> Any:
    from pyspark.sql import functions as F

    return F.lit(text)


def test_verify_detects_different_values(spark: SparkSession, store: Store, url: str, tmp_path: Path) -> None:
    fill(store, 14)
    run_archive(spark, store, url, tmp_path / "lake")
    # Change the store by hand after the run.
    import apsw

    connection = apsw.Connection(str(tmp_path / "store.db"))
    connection.execute("update penstock_audit set reason = 'forged' where reason is not null")
    connection.close()
    verdict = verify(spark, open_lake(spark, store.engine, str(tmp_path / "lake")), url)
    assert not verdict.ok
    assert ["other values" in one.differences[0] for one in verdict.comparisons] == [True] * 2


def test_verify_ignores_messages_removed_from_the_store(
    spark: SparkSession, store: Store, url: str, tmp_path: Path
) -> None:
    queue = store.queue("orders")
    ids = queue.send_many(list(range(9)))
    queue.ack_many(queue.receive(limit=9))
    run_archive(spark, store, url, tmp_path / "lake")
    queue.remove([ids[2], ids[8]])
    with open_lake(spark, store.engine, str(tmp_path / "lake")) as lake:
        verdict = verify(spark, lake, url)
    assert verdict.ok
    assert [(one.rows, one.compared) for one in verdict.comparisons] == [(27, 21), (9, 7)]
    queue.send_many([9, 10])
    queue.ack_many(queue.receive(limit=9))
    assert run_archive(spark, store, url, tmp_path / "lake").archive == 2


def test_verify_detects_rows_that_both_sides_convert_wrongly(
    spark: SparkSession, store: Store, url: str, tmp_path: Path
) -> None:
    """Make the store report that messages were held first, contrary to their rows."""
    fill(store, 14)
    run_archive(spark, store, url, tmp_path / "lake")
    import apsw

    connection = apsw.Connection(str(tmp_path / "store.db"))
    connection.execute("update penstock_log set available_at = created_at")
    connection.close()
    verdict = verify(spark, open_lake(spark, store.engine, str(tmp_path / "lake")), url)
    audit, archive = verdict.comparisons
    assert not verdict.ok
    assert archive.differences == []
    assert "the lake has send to ready" in audit.differences[0]


def test_old_days_are_dropped_and_the_rest_verifies(
    spark: SparkSession, store: Store, url: str, tmp_path: Path, clock: Clock
) -> None:
    fill(store, 14)
    run_archive(spark, store, url, tmp_path / "lake")
    clock.advance(seconds=3 * 86_400)
    fill(store, 7)
    run_archive(spark, store, url, tmp_path / "lake")
    lake = open_lake(spark, store.engine, str(tmp_path / "lake"))
    before = len(lake.manifest.files())
    assert drop_old(lake, keep_days=2) == 3
    assert len(lake.manifest.files()) == before - 3
    assert verify(spark, lake, url).ok
    assert drop_old(lake, keep_days=2) == 0


def test_store_trims_only_what_is_archived(
    spark: SparkSession, store: Store, url: str, tmp_path: Path, clock: Clock
) -> None:
    queue = store.queue("orders", history_seconds=60)
    run_archive(spark, store, url, tmp_path / "lake")
    queue.send_many([1, 2, 3])
    queue.ack_many(queue.receive(limit=3))
    for _ in range(3):
        store.sweep()
        clock.advance(seconds=100)
    assert store.sweep().trimmed == 0
    run_archive(spark, store, url, tmp_path / "lake")
    store.sweep()
    clock.advance(seconds=100)
    assert store.sweep().trimmed == 3
    lake = open_lake(spark, store.engine, str(tmp_path / "lake"))
    assert read_table(spark, lake, "archive").count() == 3
    assert verify(spark, lake, url).ok


def test_a_gap_is_an_error_until_it_is_accepted(spark: SparkSession, store: Store, url: str, tmp_path: Path) -> None:
    fill(store, 7)
    run_archive(spark, store, url, tmp_path / "lake")
    fill(store, 7)
    store.queue("orders").flush()
    fill(store, 14)
    with pytest.raises(RangeTrimmed, match="--accept-gap"):
        run_archive(spark, store, url, tmp_path / "lake")
    again = run_archive(spark, store, url, tmp_path / "lake", accept_gap=True)
    assert again.archive > 0


def test_a_directory_that_holds_something_else_is_left_alone(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    precious = tmp_path / "photos"
    precious.mkdir()
    (precious / "cat.jpg").write_bytes(b"meow")
    with pytest.raises(NotALake, match=r"it holds 'cat.jpg': name a new or empty directory"):
        open_lake(spark, store.engine, str(precious), create=True)
    assert [path.name for path in precious.iterdir()] == ["cat.jpg"]
    with pytest.raises(NotFound, match="pipeline archive"):
        open_lake(spark, store.engine, str(tmp_path / "nowhere"))


def test_the_lake_of_another_store_is_refused(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    with penstock.connect(f"sqlite:///{tmp_path}/other.db") as other:
        open_lake(spark, other.engine, str(tmp_path / "lake"), create=True)
    with pytest.raises(NotALake, match="another store"):
        open_lake(spark, store.engine, str(tmp_path / "lake"))
    (tmp_path / "lake" / SIGN).write_text(json.dumps({"lake": "x", "epoch": store.engine.epoch(), "version": 99}))
    with pytest.raises(NotALake, match="newer Penstock"):
        open_lake(spark, store.engine, str(tmp_path / "lake"))


def test_run_takes_over_from_a_dead_run_and_fails_beside_a_live_one(
    spark: SparkSession, store: Store, url: str, tmp_path: Path, clock: Clock
) -> None:
    fill(store, 7)
    first = open_lake(spark, store.engine, str(tmp_path / "lake"), create=True)
    first.manifest.begin("archive", first.staging())
    with pytest.raises(LakeBusy, match="since"):
        run_archive(spark, store, url, tmp_path / "lake")
    clock.advance(seconds=61)
    run_archive(spark, store, url, tmp_path / "lake")
    with pytest.raises(LakeBusy, match="another run"):
        first.manifest.stage(removes=("audit/precious.parquet",))
    second = open_lake(spark, store.engine, str(tmp_path / "lake"))
    second.manifest.process = gone_process()
    second.manifest.begin("archive", second.staging())
    run_archive(spark, store, url, tmp_path / "lake")
    assert_same(spark, store, open_lake(spark, store.engine, str(tmp_path / "lake")))
