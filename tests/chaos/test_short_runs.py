"""A short run of `penstock chaos` on every engine: all protocols, all faults, and every law holds."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.chaos.run import RunOptions, Verdict, run
from penstock.cli.program import app

SECONDS = 5


def judged(verdict: Verdict) -> str:
    history = "\n".join(json.dumps(event) for event in verdict.smallest)
    found = "\n".join(f"{one.law}: {one.text}" for one in verdict.violations[:10])
    return f"seed {verdict.seed}: {verdict.counts}\n{found}\n{history}\n" + "\n".join(verdict.problems)


@pytest.mark.parametrize(("server", "seed"), [("sqlite", 11), ("embedded", 12)])
def test_every_law_holds_with_all_faults_and_a_restore(server: str, seed: int) -> None:
    verdict = run(RunOptions(None, SECONDS, seed, server=server))
    assert verdict.word == "ok", judged(verdict)
    assert verdict.counts["fault restore"] == 1


@pytest.mark.parametrize(("server", "seed"), [("mariadb", 13), ("redis", 14)])
def test_every_law_holds_on_a_server_that_crashes(server: str, seed: int) -> None:
    need(server)
    verdict = run(RunOptions(None, SECONDS, seed, server=server))
    assert verdict.word == "ok", judged(verdict)


def test_every_law_holds_while_primaries_of_a_cluster_are_killed() -> None:
    """Most queues are spread over slots; every call waits for a replica."""
    need("redis")
    faults = ("kill", "freeze", "cancel", "serve", "server")
    verdict = run(RunOptions(None, 4, 16, faults, ("python", "resp"), server="redis-cluster"))
    assert verdict.word == "ok", judged(verdict)
    assert verdict.counts["fault server"] >= 1, judged(verdict)


def test_every_law_holds_behind_a_pooler_in_transaction_mode() -> None:
    need("pgbouncer")
    faults = ("kill", "freeze", "cut", "hold", "rollback", "server")
    verdict = run(RunOptions(None, 4, 15, faults, ("python", "sql"), server="pooled"))
    assert verdict.word == "ok", judged(verdict)


def need(server: str) -> None:
    """What Debian has: `make databases` installs it."""
    program = {"mariadb": "mariadbd", "redis": "redis-server"}.get(server, server)
    if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip(f"{program} is not installed: `make databases` does that, as root on Debian")


def test_the_command_prints_seed_and_verdict_takes_a_handler_and_leaves_nothing_behind(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    words = ["chaos", "--url", url, "--seconds", "2", "--seed", "3", "--json"]
    words += ["--protocols", "python", "--faults", "rollback", "--handler", "tests.chaos.handlers:sleep"]
    done = CliRunner().invoke(app, [*words, "--keep", str(tmp_path / "histories")])
    document = json.loads(done.stdout)
    assert (document["seed"], document["verdict"], document["violations"], done.exit_code) == (3, "ok", [], 0)
    assert any("handle" in path.read_text() for path in (tmp_path / "histories").glob("worker-*.jsonl"))
    with penstock.connect(url) as store:
        assert (store.queues(), store.schedules()) == ([], []), "the run left something behind"


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
