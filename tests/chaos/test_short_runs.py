"""A short run of `penstock chaos` on every engine: all protocols, all faults, and every law holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.chaos.run import RunOptions, Verdict, run
from penstock.cli.program import app

SECONDS = 8


def judged(verdict: Verdict) -> str:
    history = "\n".join(json.dumps(event) for event in verdict.smallest)
    found = "\n".join(f"{one.law}: {one.text}" for one in verdict.violations[:10])
    return f"seed {verdict.seed}: {verdict.counts}\n{found}\n{history}\n" + "\n".join(verdict.problems)


def test_every_law_holds_on_sqlite(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    verdict = run(RunOptions(url, SECONDS, seed=11))
    assert verdict.word == "ok", judged(verdict)
    with penstock.connect(url) as store:
        assert (store.queues(), store.schedules()) == ([], []), "the run left something behind"


def test_every_law_holds_on_postgres_with_a_server_that_crashes() -> None:
    verdict = run(RunOptions(None, SECONDS, seed=12))
    assert verdict.word == "ok", judged(verdict)


def test_the_command_prints_seed_and_verdict_and_takes_a_handler(tmp_path: Path) -> None:
    words = ["chaos", "--url", f"sqlite:///{tmp_path}/store.db", "--seconds", "2", "--seed", "3", "--json"]
    words += ["--protocols", "python", "--faults", "rollback", "--handler", "tests.chaos.handlers:sleep"]
    done = CliRunner().invoke(app, [*words, "--keep", str(tmp_path / "histories")])
    document = json.loads(done.stdout)
    assert (document["seed"], document["verdict"], document["violations"], done.exit_code) == (3, "ok", [], 0)
    assert any("handle" in path.read_text() for path in (tmp_path / "histories").glob("worker-*.jsonl"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--faults", "kil"], "unknown fault 'kil'"),
        (["--protocols", "grpc"], "unknown protocol 'grpc'"),
        (["--handler", "module"], "handler must be MODULE:FUNCTION"),
        (["--url", "sqlite:///:memory:"], "belongs to one process"),
    ],
)
def test_a_wrong_choice_is_refused(words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["chaos", "--seconds", "1", *words])
    assert done.exit_code == 1
    assert said in done.stderr
