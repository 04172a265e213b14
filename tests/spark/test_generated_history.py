"""The tables on a large generated history whose answers follow from arithmetic."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.spark_tables import history as made
from penstock.spark.failures import failing, failures, poison
from penstock.spark.lifecycles import leases, lifecycles, outcomes
from penstock.spark.metrics import flows, metrics
from penstock.spark.workers import utilisation

MESSAGES = 20_000
PERIODS = MESSAGES // made.PERIOD


@pytest.fixture(scope="module")
def audit(spark: SparkSession) -> DataFrame:
    return made.history(spark, MESSAGES, partitions=4).cache()


@pytest.fixture(scope="module")
def life(audit: DataFrame) -> DataFrame:
    return lifecycles(audit).cache()


def total(frame: DataFrame, *columns: str) -> list[int]:
    return list(frame.agg(*(F.sum(column) for column in columns)).collect()[0])


def test_generated_history_has_the_stated_size(audit: DataFrame) -> None:
    assert audit.count() == PERIODS * made.ENTRIES_PER_PERIOD
    assert made.messages_for(audit.count()) == MESSAGES


def test_outcomes_follow_from_the_generator(life: DataFrame) -> None:
    assert life.count() == MESSAGES
    ended = {row["outcome"]: row["messages"] for row in outcomes(life).groupBy("outcome").agg(
        F.sum("messages").alias("messages")).collect()}  # fmt: skip
    assert ended == {"succeeded": 17 * PERIODS, "failed": PERIODS, "rejected": PERIODS, "expired": PERIODS}


def test_times_are_exact(life: DataFrame) -> None:
    number = F.conv(F.substring("id", 1, 8), 16, 10).cast("long")
    waits, works = 10 + number % 100, (5 + number % 50) * F.col("deliveries")
    wrong = life.where(F.col("deliveries") > 0).where(
        (F.round(F.col("waited_seconds") * 1000) != waits) | (F.round(F.col("processed_seconds") * 1000) != works)
    )
    assert wrong.count() == 0


def test_metrics_add_up(audit: DataFrame, life: DataFrame) -> None:
    found = metrics(flows(audit), life).cache()
    retried = PERIODS * (made.ATTEMPTS - 1 + 1)
    assert total(found, "sent", "succeeded", "dead", "retried") == [MESSAGES, 17 * PERIODS, 3 * PERIODS, retried]
    last = found.orderBy(F.desc("starts_at")).first()
    assert last is not None
    assert last["backlog"] == 0
    # Waiting repeats every 100 messages; a queue has every fourth of them.
    waits = sorted(made.waited_milliseconds(number) for number in range(0, 100, 4))
    first = found.where("queue = 'queue-0'").orderBy("starts_at").first()
    assert first is not None
    assert first["waited_p50"] == pytest.approx(waits[len(waits) // 2] / 1000, abs=0.004)


def test_failures_and_poison(audit: DataFrame) -> None:
    found = {row["pattern"]: row for row in failures(failing(audit)).collect()}
    warehouse = found["warehouse <n> does not answer"]
    assert (warehouse["messages"], warehouse["dead"]) == (2 * PERIODS, PERIODS)
    assert (warehouse["most_failures"], warehouse["repeated"]) == (made.ATTEMPTS, PERIODS)
    assert found["the card was declined"]["failures"] == PERIODS
    assert poison(failing(audit)).count() == PERIODS


def test_workers_share_the_deliveries(audit: DataFrame) -> None:
    found = utilisation(leases(audit)).cache()
    assert total(found, "received") == [PERIODS * (16 + made.ATTEMPTS + 2 + 1)]
    worst = found.agg(F.max("utilisation"), F.min("utilisation")).collect()[0]
    assert 0 <= worst[1] <= worst[0] <= 1 + 1e-9
