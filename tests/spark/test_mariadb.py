"""Source, sink, lake and report on a MariaDB store: one pass; the rest is the same code as on the other engines."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from tests.cli.cli_runner import Cli
from tests.engines.mariadb.server import fresh_database
from tests.spark.source_frames import frame
from tests.spark.stores import fill


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    for name in ("PENSTOCK_URL", "PENSTOCK_CONFIG", "PENSTOCK_LAKE", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    cli = Cli(tmp_path)
    cli.url = fresh_database(tmp_path)
    return cli


def test_source_sink_lake_and_report(spark: SparkSession, cli: Cli) -> None:
    with penstock.connect(cli.url) as store:
        fill(store, 28)
        rows = frame(spark, cli.url).select("payload")
        assert rows.count() == 28
        rows.limit(5).write.format("penstock").mode("append").options(url=cli.url, queue="copies").save()
        assert len(store.queue("copies").receive(limit=10)) == 5
    answer = cli.json("pipeline", "run")
    assert answer["archived"]["archive"] == 21
    assert Path("penstock-report.html").read_text().startswith("<!doctype html>")
    assert "archive: 21 rows in the lake, 21 of them compared with the store" in cli("pipeline", "verify").stdout
