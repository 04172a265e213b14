"""The tables of small audits, checked by hand."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.domain.fingerprints import fingerprint
from penstock.spark import computed_columns
from penstock.spark.failures import failing, failures, pattern, poison
from penstock.spark.lifecycles import leases, lifecycles, outcomes
from penstock.spark.metrics import backlog, flows, metrics
from penstock.spark.tables import utc
from penstock.spark.workers import utilisation
from tests.spark.audit_entries import at, audit_frame, entry, receive, send


def rows(frame: DataFrame, *order: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.orderBy(*order).collect()]


def lives(spark: SparkSession, *entries: dict[str, Any]) -> dict[tuple[str, str | None], dict[str, Any]]:
    found = rows(lifecycles(audit_frame(spark, list(entries))), "id")
    return {(row["id"], row["group"]): row for row in found}


def approximately(**values: float) -> dict[str, Any]:
    return {name: pytest.approx(value) for name, value in values.items()}


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose local time is not UTC."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("elsewhere")
def test_times_are_utc_in_any_local_time_zone(spark: SparkSession) -> None:
    (row,) = audit_frame(spark, [send("m", 7)]).select("at").collect()
    assert utc(row["at"]) == at(7)


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


def test_every_group_has_a_lifecycle_of_every_message(spark: SparkSession) -> None:
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


def test_expiry_ends_a_delivery(spark: SparkSession) -> None:
    life = lives(spark, send("m", 0), receive("m", 2), entry("m", "expire", "expired", 9))["m", "default"]
    assert (life["state"], life["processed_seconds"]) == ("expired", pytest.approx(7))


def test_redriven_message_is_live(spark: SparkSession) -> None:
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


def test_entries_are_ordered_by_entry_when_the_clock_was_set_back(spark: SparkSession) -> None:
    audit = audit_frame(
        spark, [send("m", 0), receive("m", 10, attempt=1), entry("m", "ack", "succeeded", 8, reason="done")]
    )
    (life,) = rows(lifecycles(audit), "id")
    assert (life["state"], life["finished_at"]) == ("succeeded", at(8).replace(tzinfo=None))
    assert (life["waited_seconds"], life["processed_seconds"]) == (10, 0)
    (lease,) = rows(leases(audit), "id")
    assert (lease["ended_by"], lease["seconds"]) == ("ack", 0)
    (worker,) = rows(utilisation(leases(audit)), "worker")
    assert (worker["received"], worker["busy_seconds"]) == (1, 0)


def test_processing_time_of_a_redriven_message_counts_leases_only(spark: SparkSession) -> None:
    life = lives(
        spark,
        send("m", 0),
        receive("m", 1),
        entry("m", "expire", "expired", 4),
        entry("m", "redrive", "ready", 50),
        receive("m", 60),
        entry("m", "expire", "expired", 62),
        entry("m", "redrive", "ready", 70),
        entry("m", "expire", "expired", 90),
    )["m", "default"]
    assert life["processed_seconds"] == pytest.approx(5)
    spells = [(spell["begins_at"], spell["ends_at"], spell["outcome"]) for spell in life["spells"]]
    assert spells == [
        (at(begin).replace(tzinfo=None), at(end).replace(tzinfo=None), "expired")
        for begin, end in ((0, 4), (50, 62), (70, 90))
    ]


def test_late_group_has_no_lifecycle_of_messages_it_could_not_read(spark: SparkSession) -> None:
    audit = audit_frame(
        spark,
        [
            *(send(f"old{number}", number, position=number + 1) for number in range(3)),
            *(receive(f"old{number}", 5, position=number + 1) for number in range(3)),
            *(entry(f"old{number}", "ack", "succeeded", 6, position=number + 1) for number in range(3)),
            *(send(f"new{number}", 100, position=number + 10) for number in range(2)),
            receive("new0", 101, group="late", position=10),
            # The group received it, even if its send is not in the audit.
            receive("old2", 102, group="late", position=3),
        ],
    ).withColumn("begun", F.create_map(F.lit("late"), F.lit(3)))
    found = lifecycles(audit)
    states = {(row["id"], row["group"]): row["state"] for row in rows(found, "id")}
    assert {key: state for key, state in states.items() if key[1] == "late"} == {
        ("new0", "late"): "leased",
        ("new1", "late"): "ready",
        ("old2", "late"): "leased",
    }
    last = rows(metrics(flows(audit), found).where("`group` = 'late'"), "starts_at")[-1]
    assert (last["sent"], last["backlog"]) == (2, 3)


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


def test_backlog_covers_empty_buckets_and_earlier_messages(spark: SparkSession) -> None:
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


def test_ended_message_is_not_the_oldest_before_its_redrive(spark: SparkSession) -> None:
    audit = audit_frame(
        spark,
        [
            send("m", 0),
            receive("m", 1),
            entry("m", "reject", "rejected", 2),
            send("next", 61),
            entry("m", "redrive", "ready", 130),
            receive("m", 190),
            entry("m", "ack", "succeeded", 191),
        ],
    )
    found = rows(backlog(flows(audit), lifecycles(audit)), "starts_at")
    assert [(row["backlog"], row["oldest_age_seconds"]) for row in found] == [
        (0, None),
        (1, pytest.approx(59)),
        (2, pytest.approx(180)),
        (1, pytest.approx(179)),
    ]


def test_age_of_waiting_messages_grows_to_the_end_of_the_period(spark: SparkSession) -> None:
    audit = audit_frame(spark, [send("m", 0), receive("other", 1), entry("other", "ack", "succeeded", 2)])
    found = rows(metrics(flows(audit), lifecycles(audit), until=at(76)), "starts_at")
    ages = [row["oldest_age_seconds"] for row in found if row["queue"] == "orders"]
    assert ages == [pytest.approx(60), pytest.approx(76)]


def test_deliveries_are_tried_again_at_most_as_often_as_they_ended(spark: SparkSession) -> None:
    """They may have begun in another bucket."""
    audit = audit_frame(
        spark,
        [
            *(receive(f"m{number}", 50) for number in range(4)),
            *(entry(f"m{number}", "nak", "ready", 61) for number in range(4)),
            receive("m0", 62, attempt=2),
        ],
    )
    second = rows(metrics(flows(audit), lifecycles(audit)), "starts_at")[1]
    assert (second["received"], second["settled"], second["retried"]) == (1, 4, 4)


def test_failures_are_grouped_without_numbers_and_names(spark: SparkSession) -> None:
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


def test_overlapping_deliveries_count_as_busy_time_once(spark: SparkSession) -> None:
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
            (field.name, field.dataType) for field in getattr(computed_columns, name)
        ], name
    assert made["METRICS"].collect() == []
