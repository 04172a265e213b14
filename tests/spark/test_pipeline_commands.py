"""`penstock pipeline …`: output for people and programs, and errors before any work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.cli_runner import Cli
from tests.spark.dashboard_pages import check_pages
from tests.spark.stores import fill


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    for name in ("PENSTOCK_URL", "PENSTOCK_CONFIG", "PENSTOCK_LAKE", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return Cli(tmp_path)


def test_run_archives_reports_and_records_its_status(spark: SparkSession, cli: Cli) -> None:
    with cli.store() as store:
        fill(store, 28)
    answer = cli.json("pipeline", "run")
    assert answer["archived"]["archive"] == 21
    assert answer["report"] == "penstock-report.html"
    page = Path("penstock-report.html").read_text()
    for finding in answer["findings"]:
        assert finding["level"] in ("good", "note", "bad")
    assert page.startswith("<!doctype html>")
    assert sorted(path.name for path in Path("penstock-lake").iterdir() if not path.name.startswith("_")) == [
        "archive", "audit", "dead_letters", "tables",
    ]  # fmt: skip
    verified = cli("pipeline", "verify").stdout
    assert "audit: 82 rows in the lake, 82 of them compared with the store" in verified
    status = cli.json("pipeline", "status")
    assert [(run["job"], run["ok"]) for run in status["runs"]] == [("verify", True), ("run", True)]
    assert status["lakes"][0]["path"].endswith("/penstock-lake")
    assert status["report"]["path"] == str(Path("penstock-report.html").absolute())
    check_pages(
        cli.url,
        status,
        ["21 ended messages, 82 audit entries and 5 dead letters of 1 queue archived", "agree with the store"],
    )
    again = cli("pipeline", "archive", "--lake", "penstock-lake").stdout
    assert "Nothing new" in again
    assert "penstock-lake" in cli("pipeline", "status").stdout


def failing(cli: Cli, *words: str) -> str:
    """The error of a failing run, after its progress."""
    return cli(*words, code=1).stderr.strip()


def test_verify_fails_with_an_exit_code(spark: SparkSession, cli: Cli) -> None:
    with cli.store() as store:
        fill(store, 7)
    cli("pipeline", "archive", "--lake", "lake")
    next(Path("lake/archive").rglob("*.parquet")).unlink()
    told = cli("pipeline", "verify", "--lake", "lake", code=1).stdout
    assert "missing or changed: archive/day=" in told


def test_invalid_arguments_fail_before_any_work(spark: SparkSession, cli: Cli) -> None:
    assert "there is no store" in cli.error("pipeline", "run")
    with cli.store() as store:
        fill(store, 7)
    Path("photos").mkdir()
    Path("photos/cat.jpg").touch()
    assert "is not a lake" in failing(cli, "pipeline", "archive", "--lake", "photos")
    assert "pipeline archive" in failing(cli, "pipeline", "report", "--lake", "nowhere")
    assert "is a directory" in failing(cli, "pipeline", "report", "--out", "photos")
    assert "no directory" in failing(cli, "pipeline", "run", "--out", "nowhere/report.html")
    assert "at least 1 day" in failing(cli, "pipeline", "run", "--keep-days", "0")
    assert "not a Spark setting" in failing(cli, "pipeline", "run", "--conf", "memory=4g")
    assert not Path("nowhere").exists()
    assert [run["ok"] for run in cli.json("pipeline", "status")["runs"]] == [False, False]


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"JAVA_HOME": "/nowhere"}, "JAVA_HOME is '/nowhere', which has no bin/java"),
        ({"PATH": "/nowhere"}, "no java on the PATH"),
    ],
    ids=["wrong-home", "no-java"],
)
def test_missing_java_is_reported_with_advice(cli: Cli, environment: dict[str, str], told: str) -> None:
    with cli.store() as store:
        store.queue("orders").send(1)
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    ended = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "pipeline", "run", "--url", cli.url, "--json"],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    error = json.loads(ended.stderr)
    assert error["error"] == "MissingExtra"
    assert told in error["message"]
    assert "openjdk-17" in error["message"]
