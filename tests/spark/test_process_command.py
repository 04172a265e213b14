"""`penstock pipeline process` and `penstock pipeline replay`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.cli_runner import Cli


@pytest.fixture
def cli(tmp_path: Path, spark: SparkSession) -> Cli:
    """Uses the active session, as under `spark-submit`."""
    return Cli(tmp_path)


def test_a_handler_runs_over_a_queue_and_its_dead_letters_are_replayed(cli: Cli, tmp_path: Path) -> None:
    for number in (1, 3, 13):
        cli.send("orders", f'{{"number": {number}, "folder": "{tmp_path}"}}')
    target = "tests.spark.handlers:moody"
    report = cli.json("pipeline", "process", target, "--queue", "orders", "--tasks", "1")
    assert report["settled"] == {"ack": 1, "reject": 2}
    assert "nothing to do" in cli("pipeline", "process", target, "--queue", "orders", "--tasks", "1").stdout
    words = ("pipeline", "replay", "again", "--queue", "orders")
    assert cli.json(*words, "--where", "reason like '%13%'")["chosen"] == 1
    assert "2 messages chosen" in cli(*words).stdout
    assert len(cli.json("peek", "again", "--limit", "10")) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("process", "tests.spark.handlers:moody", "--queue", "ordres"), "did you mean 'orders'"),
        (("process", "tests.spark.handlers:mood", "--queue", "orders"), "did you mean 'moody'"),
        (("process", "tests.spark.handlers:moody", "--queue", "orders", "--conf", "memory=1g"), "not a Spark setting"),
        (("replay", "again", "--queue", "orders", "--where", "reason ="), "the filter"),
        (("replay", "again"), "whose dead letters"),
    ],
)
def test_errors_are_one_line(cli: Cli, words: tuple[str, ...], said: str) -> None:
    cli.send("orders", "1")
    assert said in cli.error("pipeline", *words)
