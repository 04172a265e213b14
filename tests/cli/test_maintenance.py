"""sweep, migrate, doctor, repair and version."""

from __future__ import annotations

import platform
import re
from contextlib import closing

import apsw
import pytest

import penstock
from tests.cli.cli_runner import Cli


def test_sweep_counts_what_it_did(cli: Cli) -> None:
    cli.send("orders", "1", "--ttl-seconds", "0.000001")
    report = cli.json("sweep")
    assert report["expired"] == 1
    assert set(report) == set(penstock.SweepReport.__struct_fields__)
    assert "Nothing to do." in cli("sweep").stdout


def test_sweep_shows_only_what_it_did(cli: Cli) -> None:
    cli.send("orders", "1", "--ttl-seconds", "0.000001")
    page = cli("sweep").stdout
    assert re.search(r"expired\s+1", page)
    assert "trimmed" not in page


def test_migrate_makes_a_store_that_is_then_up_to_date(cli: Cli) -> None:
    cli("migrate")
    assert cli.path.exists()
    document = cli.json("migrate")
    assert document["steps"] == []
    assert document["url"] == cli.url
    assert "is up to date" in cli("migrate").stdout


def test_doctor_finds_a_healthy_store_healthy(cli: Cli) -> None:
    cli.send("orders", "1")
    checks = cli.json("doctor")
    assert checks
    assert {check["level"] for check in checks} <= {"ok", "warning"}
    page = cli("doctor").stdout
    assert all(check["name"] in page for check in checks)


def test_doctor_exits_with_1_on_an_error_only(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.send("orders", "1")
    for level, code in (("ok", 0), ("warning", 0), ("error", 1)):
        found = [penstock.Check("disk", level, "is on fire", "put it out")]
        monkeypatch.setattr(penstock.Store, "doctor", lambda store, found=found: found)
        page = cli("doctor", code=code).stdout
        assert "disk: is on fire" in page
        assert "What to do: put it out" in page


def test_repair_has_nothing_to_do_in_a_sound_store(cli: Cli) -> None:
    cli.send("orders", "1")
    assert cli.json("repair") == []
    assert cli("repair", "--dry-run").stdout == "Nothing to mend.\n"


def test_repair_says_what_it_did_and_what_is_left_to_a_person(cli: Cli) -> None:
    with penstock.connect(cli.url) as store:
        store.queue("orders").batch("nightly").start()
        store.queue("orders").batch("nightly").send("late")
    with closing(apsw.Connection(str(cli.path))) as own:
        own.execute("update penstock_held set created_at = created_at - 1000000000").fetchall()
    for options in ([], ["--dry-run", "--batches", "cancel"]):
        page = cli("repair", *options).stdout
        assert "stranded batches: 1 messages of queue 'orders' wait in batch 'nightly'" in page
        assert "To do: " in page
    [done] = cli.json("repair", "--batches", "cancel")
    assert done["done"]
    assert cli("repair").stdout == "Nothing to mend.\n"
    assert "cancel" in cli("repair", "--batches", "stop", code=2).stderr


def test_version(cli: Cli) -> None:
    assert cli("version").stdout == f"penstock {penstock.__version__}\n"
    assert cli.bare("--version").stdout == f"penstock {penstock.__version__}\n"
    assert cli.json("version")["python"] == platform.python_version()
