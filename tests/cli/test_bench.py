"""bench: measures a store and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from tests.cli.cli_runner import Cli
from tests.engines.postgres.server import fresh_database

WRONG = {
    ("--batch", "0"): "batch must be between 1 and 100000, not 0",
    ("--batch", "many"): "'many' is not a whole number",
    ("--seconds", "0"): "seconds must be more than 0 seconds, not 0",
    ("--seconds", "61"): "seconds must be at most 60, not 61",
    ("--payload-bytes", "-1"): "payload_bytes must be between 0 and 67108864, not -1",
    ("--batch", "100000", "--payload-bytes", "1000"): "100,000 payloads with 1,000 bytes each is too large",
}


def test_bench_measures_each_batch_size_and_leaves_nothing_behind(cli: Cli) -> None:
    message_id = cli.send("orders", "1")
    before = sorted(cli.path.parent.iterdir())
    rates = cli.json("bench", "--batch", "1", "--batch", "7", "--seconds", "0.05", "--payload-bytes", "9")
    assert [rate["batch"] for rate in rates] == [1, 7]
    for rate in rates:
        assert rate["messages"] > 0
        assert rate["messages"] % rate["batch"] == 0
        whole = 1 / rate["send"] + 1 / rate["receive"] + 1 / rate["ack"]
        assert rate["all"] == pytest.approx(1 / whole)
    assert sorted(cli.path.parent.iterdir()) == before
    with cli.store() as store:
        assert [info.name for info in store.queues()] == ["orders"]
        assert store.queue("orders").find(message_id).payload == b"1"


def test_bench_prints_a_row_for_each_batch_size(cli: Cli) -> None:
    page = cli("bench", "--seconds", "0.02").stdout
    assert "Messages per second" in page
    assert [line.split()[0] for line in page.splitlines() if line.strip()[:1].isdigit()] == ["1", "10", "100", "1,000"]


def test_bench_empties_its_queue_on_postgres(cli: Cli, tmp_path: Path) -> None:
    url = fresh_database(folder=tmp_path)
    for _ in range(2):
        rates = cli.bare("--url", url, "--json", "bench", "--batch", "3", "--seconds", "0.05")
        assert '"batch":3' in rates.stdout
    with penstock.connect(url) as store:
        queue = store.queue("penstock-bench")
        stats = queue.stats("default")
        assert (stats.available, stats.in_progress, stats.done, queue.archive()) == (0, 0, 0, [])


def test_bench_refuses_a_queue_with_messages(cli: Cli, tmp_path: Path) -> None:
    url = fresh_database(folder=tmp_path)
    with penstock.connect(url) as store:
        store.queue("penstock-bench").send(b"mine")
        said = cli.bare("--url", url, "bench", "--seconds", "0.01", code=1).stderr
        assert "'penstock-bench' is not empty" in said
        assert store.queue("penstock-bench").receive()[0].payload == b"mine"


def test_bench_measures_at_least_one_call(cli: Cli) -> None:
    assert cli.json("bench", "--batch", "5", "--seconds", "1e-9")[0]["messages"] == 5


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_invalid_bench_options_are_errors(cli: Cli, words: tuple[str, ...]) -> None:
    code = 2 if words == ("--batch", "many") else 1
    assert WRONG[words] in cli.error("bench", *words, code=code)


def test_an_unwritable_directory_is_an_error(cli: Cli, tmp_path: Path) -> None:
    said = cli.bare("--url", f"sqlite:///{tmp_path}/nowhere/app.db", "bench", code=1).stderr
    assert f"{tmp_path}/nowhere: no file can be made there to measure with" in said
