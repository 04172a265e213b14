"""Handlers on Spark: each message is settled by its own outcome, under leases that are extended."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import GroupMisused, InvalidInput, Store
from penstock.domain.errors import NotFound
from penstock.spark import process as process_module
from penstock.spark.errors import as_error
from penstock.spark.process import find_function, process
from tests.conformance.assertions import assert_books_balance, assert_trail_is_legal


def handled(folder: Path) -> Counter[str]:
    return Counter(line.split()[0] for path in folder.glob("*.txt") for line in path.read_text().splitlines())


def test_each_message_has_its_own_outcome(spark: SparkSession, store: Store, url: str, tmp_path: Path) -> None:
    queue = store.queue("orders", backoff_base_seconds=0.01, backoff_jitter_seconds=0, max_retries=3)
    ids = queue.send_many([{"number": number, "folder": str(tmp_path)} for number in range(60)])
    report = process(spark, url, "orders", "tests.spark.handlers:moody", tasks=2, concurrency=2)
    stats = assert_books_balance(queue, 60)
    assert (stats.done, stats.dead) == (54, 6)
    assert {letter.outcome for letter in queue.dead_letters()} == {"rejected"}
    assert report.tasks == 2
    assert report.settled["ack"] == 54
    assert report.settled["nak"] == 12
    for message_id in ids:
        assert_trail_is_legal(queue, message_id)
    assert store.consumers() == []
    assert store.engine.ledger(process_module.KIND) == {}


def test_leases_are_extended_while_a_handler_runs(spark: SparkSession, store: Store, url: str, tmp_path: Path) -> None:
    queue = store.queue("orders", lease_seconds=2)
    queue.send({"seconds": 4, "folder": str(tmp_path)})
    process(spark, url, "orders", "tests.spark.handlers:slow", tasks=2)
    assert set(handled(tmp_path).values()) == {1}
    assert queue.stats("default").done == 1


def test_endless_job_stops_on_request(spark: SparkSession, store: Store, url: str, tmp_path: Path) -> None:
    queue = store.queue("orders")
    queue.send({"folder": str(tmp_path)})
    reports = []
    job = threading.Thread(
        target=lambda: reports.append(
            process(spark, url, "orders", "tests.spark.handlers:note", tasks=2, group="second", once=False)
        )
    )
    job.start()
    seen = store.engine.seen()
    while not queue.stats().get("second") or not queue.stats("second").done:
        seen = store.engine.wait(seen, 1)
    [name] = store.engine.ledger(process_module.KIND)
    process_module.stop(store, name)
    job.join(60)
    assert [report.settled for report in reports] == [{"ack": 1}]
    assert queue.stats("default").available == 1


def test_endless_job_is_restarted_when_its_processes_die(
    spark: SparkSession, store: Store, url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = store.queue("orders", lease_seconds=2)
    queue.send({"folder": str(tmp_path)})
    ended = []

    def run() -> None:
        target = "tests.spark.handlers:deadly"
        ended.append(process(spark, url, "orders", target, tasks=1, heartbeat_seconds=0.5, once=False))

    job = threading.Thread(target=run)
    job.start()
    seen = store.engine.seen()
    while not queue.stats("default").done and job.is_alive():
        seen = store.engine.wait(seen, 1)
    for name in store.engine.ledger(process_module.KIND):
        process_module.stop(store, name)
    job.join(60)
    assert [one.settled for one in ended] == [{"ack": 1}]
    assert handled(tmp_path).total() == 3
    warned = [record.getMessage() for record in caplog.records if record.name == "penstock.spark"]
    assert len(warned) == 2
    assert all("crashed" in line and "begun again" in line for line in warned)


def test_job_fails_when_executors_cannot_import_the_handler(
    spark: SparkSession, store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.queue("orders").send(1)
    monkeypatch.setattr(
        process_module, "find_function", lambda *_: None
    )  # importable in this process, but not on executors
    with pytest.raises(InvalidInput, match="cannot be imported"):
        process(spark, url, "orders", "no_such_module:note", once=False)


def test_error_names_the_cause_of_lost_executors() -> None:
    text = (
        "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 0.0 failed 4 times, most "
        "recent failure: Lost task 1.3 in stage 0.0 (TID 7) (10.0.0.7 executor 6): ExecutorLostFailure (executor 6 "
        "exited caused by one of the running tasks) Reason: Command exited with code 137\nDriver stacktrace:\n"
    )
    told = str(as_error("the job could not be finished", RuntimeError(text)))
    assert told == (
        "the job could not be finished: executor 6 exited caused by one of the running tasks: Command exited with "
        "code 137"
    )


def test_invalid_process_arguments_fail_before_work_starts(spark: SparkSession, store: Store, url: str) -> None:
    store.queue("orders").send(1)
    store.engine.advance("orders", "lake", 0)
    with pytest.raises(NotFound, match="did you mean 'orders'"):
        process(spark, url, "ordres", "tests.spark.handlers:note")
    with pytest.raises(GroupMisused, match="lake"):
        process(spark, url, "orders", "tests.spark.handlers:note", group="lake")
    with pytest.raises(InvalidInput, match="concurrency"):
        process(spark, url, "orders", "tests.spark.handlers:note", concurrency=0)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("tests.spark.handlers", "module:function"),
        ("tests.spark.handlres:note", "cannot be imported"),
        ("tests.spark.handlers:not", "did you mean 'note'"),
        ("tests.spark.handlers:NOT_A_FUNCTION", "not a function"),
    ],
)
def test_missing_function_is_named(target: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=said):
        find_function(target, str(tmp_path))
