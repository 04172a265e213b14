"""The tables on audits small enough to check by hand."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.domain.fingerprints import fingerprint
from penstock.spark import schemas
from penstock.spark.failures import failing, failures, pattern, poison
from penstock.spark.lifecycles import leases, lifecycles, outcomes
from penstock.spark.metrics import backlog, flows, metrics
from penstock.spark.workers import utilisation
from tests.spark.frames import at, audit_frame, entry, receive, send


def rows(frame: DataFrame, *order: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.orderBy(*order).collect()]


def lives(spark: SparkSession, *entries: dict[str, Any]) -> dict[tuple[str, str | None], dict[str, Any]]:
    found = rows(lifecycles(audit_frame(spark, list(entries))), "id")
    return {(row["id"], row["group"]): row for row in found}


def approximately(**values: float) -> dict[str, Any]:
    return {name: pytest.approx(value) for name, value in values.items()}


def test_a_message_that_fails_once_and_succeeds(spark: SparkSession) -> None:
    found = lives(
        spark,
        send("m", 0),
        receive("m", 3, by="ada"),
        entry("m", "nak", "held", 4.5, reason="busy"),
        entry("m", "due", "ready", 10),
        receive("m", 12, attempt=2, by="alan"),
        entry("m", "ack", "succeeded", 12.25, attempt=2, by="alan"),
    )
    life = found["m", "default"]
    assert life["state"] == "succeeded"
    assert life["finished_at"] == at(12.25).replace(tzinfo=None)
    assert (life["deliveries"], life["attempts"]) == (2, 2)
    assert (life["workers"], life["last_reason"]) == (["ada", "alan"], "busy")
    times = {name: life[name] for name in ("waited_seconds", "processed_seconds", "total_seconds")}
    assert times == approximately(waited_seconds=3, processed_seconds=1.75, total_seconds=12.25)


def test_every_group_of_a_queue_has_a_life_of_every_message(spark: SparkSession) -> None:
    found = lives(
        spark,
        send("one", 0),
        send("two", 1),
        receive("one", 2, group="billing"),
        entry("one", "ack", "succeeded", 3, group="billing"),
        receive("two", 4, group="mail"),
        send("elsewhere", 0, queue="quiet"),
    )
    states = {key: row["state"] for key, row in found.items()}
    assert states == {
        ("one", "billing"): "succeeded",
        ("one", "mail"): "ready",
        ("two", "billing"): "ready",
        ("two", "mail"): "leased",
        ("elsewhere", None): "ready",
    }
    assert found["two", "mail"]["processed_seconds"] == 0
    assert found["one", "mail"]["processed_seconds"] is None


def test_a_held_message_waits_from_when_it_became_due(spark: SparkSession) -> None:
    life = lives(spark, send("m", 0, state="held"), entry("m", "due", "ready", 60, group=None), receive("m", 61))
    assert life["m", "default"]["waited_seconds"] == pytest.approx(1)


def test_a_delivery_that_the_expiry_ended_was_worked_on_until_then(spark: SparkSession) -> None:
    life = lives(spark, send("m", 0), receive("m", 2), entry("m", "expire", "expired", 9))["m", "default"]
    assert (life["state"], life["processed_seconds"]) == ("expired", pytest.approx(7))


def test_a_redriven_message_is_alive_again(spark: SparkSession) -> None:
    life = lives(
        spark,
        send("m", 0),
        receive("m", 1),
        entry("m", "reject", "rejected", 2, reason="no"),
        entry("m", "redrive", "ready", 100, by="operator"),
    )["m", "default"]
    assert (life["state"], life["finished_at"]) == ("ready", None)


def test_thousands_of_deliveries_do_not_overflow(spark: SparkSession) -> None:
    entries = [send("m", 0)]
    for number in range(6000):
        entries += [receive("m", 10 * number, attempt=number + 1), entry("m", "nak", "ready", 10 * number + 0.5)]
    life = lives(spark, *entries)["m", "default"]
    assert (life["deliveries"], life["processed_seconds"]) == (6000, pytest.approx(3000))


def test_leases_end_with_the_next_entry_of_their_message(spark: SparkSession) -> None:
    audit = audit_frame(
        spark,
        [
            send("m", 0),
            receive("m", 1, by="ada"),
            receive("other", 1.5, by="alan"),
            entry("m", "lease_end", "ready", 31),
            receive("m", 32, attempt=2, by="alan"),
        ],
    )
    found = rows(leases(audit), "leased_at")
    assert [(row["id"], row["worker"], row["ended_by"], row["seconds"]) for row in found] == [
        ("m", "ada", "lease_end", pytest.approx(30)),
        ("other", "alan", None, None),
        ("m", "alan", None, None),
    ]


def test_metrics_of_a_minute(spark: SparkSession) -> None:
    audit = audit_frame(
        spark,
        [
            *(send(f"m{number}", number) for number in range(4)),
            *(receive(f"m{number}", 10 + number) for number in range(3)),
            entry("m0", "ack", "succeeded", 11),
            entry("m1", "nak", "ready", 12, reason="busy"),
            entry("m2", "reject", "rejected", 70, reason="no"),
        ],
    )
    life = lifecycles(audit)
    first, second = rows(metrics(flows(audit), life), "starts_at")
    counts = ("sent", "received", "retried", "finished", "succeeded", "dead", "backlog")
    assert [first[name] for name in counts] == [4, 3, 1, 1, 1, 0, 3]
    assert [second[name] for name in counts] == [0, 0, 0, 1, 0, 1, 2]
    assert (first["failure_rate"], second["failure_rate"]) == (0, 1)
    assert (first["waited_p50"], first["waited_p99"]) == (pytest.approx(10), pytest.approx(10))
    assert first["processed_p50"] == pytest.approx(1)
    assert (first["oldest_age_seconds"], second["oldest_age_seconds"]) == (pytest.approx(59), pytest.approx(119))


def test_the_backlog_goes_on_where_nothing_happens_and_begins_with_what_was_there(spark: SparkSession) -> None:
    audit = audit_frame(
        spark,
        [
            send("late", 60),
            entry("sent before the history", "ack", "succeeded", 61),
            receive("late", 290),
            entry("late", "ack", "succeeded", 300),
            send("last", 301),
        ],
    )
    found = rows(backlog(flows(audit), lifecycles(audit)), "starts_at")
    assert [row["backlog"] for row in found] == [1, 1, 1, 1, 1]
    assert [row["oldest_age_seconds"] for row in found] == [
        *(pytest.approx(60 * minutes) for minutes in (1, 2, 3, 4)),
        pytest.approx(59),
    ]


def test_failures_are_one_kind_whatever_their_numbers_and_names(spark: SparkSession) -> None:
    told = ["order 17 of 'ada' at 10.0.0.7:5432 timed out", "order 4711 of 'alan' at 10.0.0.8:5432 timed out"]
    audit = audit_frame(
        spark,
        [
            *(entry("a", "nak", "ready", place, reason=told[0], attempt=place) for place in (1, 2, 3)),
            entry("a", "nak", "failed", 4, reason=told[1], attempt=4),
            entry("b", "nak", "ready", 2, reason=told[1]),
            entry("c", "lease_end", "ready", 2),
            entry("d", "reject", "rejected", 5, reason="\x00 <script>alert(1)</script>"),
        ],
    )
    found = {row["pattern"]: row for row in rows(failures(failing(audit)), "pattern")}
    timeouts = found["order <n> of '…' at <n>:<n> timed out"]
    counts = ("failures", "messages", "dead", "most_failures", "repeated")
    assert [timeouts[name] for name in counts] == [5, 2, 1, 4, 1]
    assert timeouts["example"] == told[0]
    assert [found["the lease ended: its consumer vanished or was too slow"][name] for name in counts] == [1, 1, 0, 1, 1]
    assert len(found) == 3
    assert len({row["fingerprint"] for row in found.values()}) == 3
    assert [(row["id"], row["failures"], row["state"]) for row in rows(poison(failing(audit)), "id")] == [
        ("a", 4, "failed")
    ]


def test_a_reason_has_the_fingerprint_that_dead_letters_have(spark: SparkSession) -> None:
    told = [
        "order 17 of 'ada' at 10.0.0.7:5432 timed out",
        "no row 7d3c1f0a-52d4-4c1d-8a0c-3f5a1f6f0c11\n\tsince 2026-02-03T04:05:06.789Z for ada@example.org",
        'key "a b" of 0xDEADBEEF0123 or 0123456789abcdef01 cost 1,234.50',
        "  ",
        "ü " * 700 + "5",
        "$1 \\ <script>",
    ]
    frame = spark.createDataFrame([(reason,) for reason in told], "reason string")
    assert [row[0] for row in frame.select(pattern(F.col("reason"))).collect()] == [fingerprint(one) for one in told]


def test_a_worker_is_busy_once_however_much_it_has_in_hand(spark: SparkSession) -> None:
    audit = audit_frame(
        spark,
        [
            *(receive(f"m{number}", 10) for number in range(3)),
            *(entry(f"m{number}", "ack", "succeeded", 25) for number in range(3)),
            receive("long", 20),
            entry("long", "nak", "ready", 80),
        ],
    )
    first, second = rows(utilisation(leases(audit)), "starts_at")
    assert (first["busy_seconds"], second["busy_seconds"]) == (pytest.approx(50), pytest.approx(20))
    assert first["utilisation"] == pytest.approx(50 / 60)
    assert first["in_hand"] == pytest.approx((3 * 15 + 40) / 60)
    assert [first[name] for name in ("received", "succeeded", "failed")] == [4, 3, 1]


def test_tables_have_their_columns_even_without_a_row(spark: SparkSession) -> None:
    audit = audit_frame(spark, [])
    life, flow, lease = lifecycles(audit), flows(audit), leases(audit)
    made = {
        "LIFECYCLES": life,
        "LEASES": lease,
        "METRICS": metrics(flow, life),
        "BACKLOG": backlog(flow, life),
        "OUTCOMES": outcomes(life),
        "FAILURES": failures(failing(audit)),
        "POISON": poison(failing(audit)),
        "WORKERS": utilisation(lease),
    }
    for name, frame in made.items():
        assert [(field.name, field.dataType) for field in frame.schema] == [
            (field.name, field.dataType) for field in getattr(schemas, name)
        ], name
    assert made["METRICS"].collect() == []
