"""Replay: ended messages are sent to a queue once each, with their lineage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest
from pyspark.sql import SparkSession

from penstock import InvalidInput, Store
from penstock.domain.errors import NotFound
from penstock.spark import replay as replay_module
from penstock.spark.lake.archive import archive
from penstock.spark.lake.lake import open_lake
from penstock.spark.replay import replay
from penstock.spark.replay_ledger import ReplayLedger


def fail_some(store: Store) -> dict[int, str]:
    """Ten messages, five of them rejected; returns the ids of the dead letters by number."""
    queue = store.queue("orders")
    for number in range(10):
        queue.send({"number": number}, headers={"trace": f"t{number}"}, priority=number % 2, key=f"k{number}")
    dead = {}
    for delivery in queue.receive(limit=10):
        number = delivery.json()["number"]
        if number < 5:
            delivery.reject("timeout" if number < 3 else "bad")
            dead[number] = delivery.id
        else:
            delivery.ack()
    return dead


def test_dead_letters_go_back_with_their_lineage(spark: SparkSession, store: Store, url: str) -> None:
    dead = fail_some(store)
    report = replay(spark, url, "again", queue="orders", where="reason = 'timeout'")
    assert report.chosen == 3
    queue = store.queue("again")
    found = {queue.find(delivery.id).json()["number"]: queue.find(delivery.id) for delivery in queue.receive(limit=10)}
    assert set(found) == {0, 1, 2}
    message = found[1]
    assert message.headers == {
        "trace": "t1",
        "penstock-replay-of": dead[1],
        "penstock-replay-queue": "orders",
        "penstock-replay-name": "dead letters of orders into again",
    }
    assert (message.priority, message.key, message.content_type) == (1, "k1", "application/json")
    assert queue.audit(message.id)[0].by == f"replay of {dead[1]}"
    assert len(store.queue("orders").dead_letters()) == 5


def test_a_replay_run_again_sends_only_what_is_new(spark: SparkSession, store: Store, url: str) -> None:
    fail_some(store)
    replay(spark, url, "again", queue="orders", where="reason = 'timeout'")
    replay(spark, url, "again", queue="orders")
    queue = store.queue("again")
    assert sorted(delivery.json()["number"] for delivery in queue.receive(limit=20)) == [0, 1, 2, 3, 4]
    replay(spark, url, "again", queue="orders", name="once more", where="reason = 'bad'")
    again = queue.receive(limit=20)
    assert sorted(delivery.json()["number"] for delivery in again) == [3, 4]
    # A replayed message that died can be replayed too; its lineage names its direct origin.
    for delivery in again:
        delivery.reject("still bad")
    replay(spark, url, "third", queue="again")
    third = store.queue("third").receive(limit=20)
    assert {store.queue("third").find(one.id).headers["penstock-replay-queue"] for one in third} == {"again"}


def test_a_replay_sends_nothing_twice_though_its_queue_was_trimmed(
    spark: SparkSession, store: Store, url: str, tmp_path: Path
) -> None:
    fail_some(store)
    path = str(tmp_path / "lake")
    archive(spark, open_lake(spark, store.engine, path, create=True), url)
    first = replay(spark, url, "again", lake=path, where="outcome = 'rejected'")
    assert (first.chosen, first.sent) == (5, 5)
    queue = store.queue("again")
    queue.ack_many(queue.receive(limit=20))
    assert queue.trim(keep=0) == 5
    again = replay(spark, url, "again", lake=path)
    assert (again.chosen, again.sent) == (10, 5)
    assert sorted(delivery.json()["number"] for delivery in queue.receive(limit=20)) == [5, 6, 7, 8, 9]
    assert store.engine.ledger("sink") == {}


@pytest.mark.parametrize("is_sent", [True, False])
def test_interrupted_replay_is_completed_by_the_next_run(
    spark: SparkSession, store: Store, url: str, monkeypatch: pytest.MonkeyPatch, is_sent: bool
) -> None:
    """Interrupted before or after its messages were sent, and before that was recorded."""
    fail_some(store)

    class Died(Exception):
        pass

    def die(*_: object) -> None:
        raise Died

    with monkeypatch.context() as patch:
        if is_sent:
            finished = ReplayLedger.finish
            calls: Iterator[Callable[[ReplayLedger], None]] = iter([finished, die])
            patch.setattr(ReplayLedger, "finish", lambda self: next(calls)(self))
        else:
            patch.setattr(replay_module, "as_replayed", die)
        with pytest.raises(Died):
            replay(spark, url, "again", queue="orders")
    queue = store.queue("again")
    assert len(queue.receive(limit=20)) == (5 if is_sent else 0)
    queue.trim(keep=0)
    assert replay(spark, url, "again", queue="orders").sent == (0 if is_sent else 5)
    assert all("/done/" in key for key in store.engine.ledger("replay"))


def test_sent_positions_are_kept_as_ranges(store: Store) -> None:
    replays = ReplayLedger(store.engine, "nightly", "again")
    many = numpy.arange(60_000, 200_000)
    run = replays.begin({"a/b": many, "c": numpy.array([5])})
    store.engine.record("sink", {f"{replays.key}/{run}/again": "{}"})
    replays.finish()
    kept = store.engine.ledger("replay")
    assert (len(kept), max(map(len, kept.values())) < 40) == (5, True)
    assert replays.new({"a/b": many, "c": numpy.array([5])}) == {}
    new = replays.new({"a/b": numpy.array([59_999, 60_000, 200_000]), "d": numpy.array([7])})
    assert {queue: list(positions) for queue, positions in new.items()} == {"a/b": [59_999, 200_000], "d": [7]}
    assert list(ReplayLedger(store.engine, "other", "again").new({"c": numpy.array([5])})) == ["c"]


def test_finished_messages_come_from_the_lake(spark: SparkSession, store: Store, url: str, tmp_path: Path) -> None:
    fail_some(store)
    path = str(tmp_path / "lake")
    archive(spark, open_lake(spark, store.engine, path, create=True), url)
    report = replay(
        spark,
        url,
        "again",
        lake=path,
        where="outcome = 'succeeded' and get_json_object(cast(payload as string), '$.number') > 6",
    )
    assert report.chosen == 3
    numbers = [delivery.json()["number"] for delivery in store.queue("again").receive(limit=10)]
    assert sorted(numbers) == [7, 8, 9]


@pytest.mark.parametrize("where", ["reason ==== 1", "no_such_column = 1", "reason"])
def test_a_filter_that_does_not_fit_is_refused_before_anything_is_sent(
    spark: SparkSession, store: Store, url: str, where: str
) -> None:
    fail_some(store)
    with pytest.raises(InvalidInput, match="the filter"):
        replay(spark, url, "again", queue="orders", where=where)
    assert [info.name for info in store.queues()] == ["orders"]


def test_replay_of_a_missing_queue_or_lake_is_refused(
    spark: SparkSession, store: Store, url: str, tmp_path: Path
) -> None:
    fail_some(store)
    with pytest.raises(NotFound, match="did you mean 'orders'"):
        replay(spark, url, "again", queue="ordres")
    with pytest.raises(InvalidInput, match="whose dead letters"):
        replay(spark, url, "again")
    with pytest.raises(NotFound, match="no lake"):
        replay(spark, url, "again", lake=str(tmp_path / "nowhere"))
