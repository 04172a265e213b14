"""The demo passes its own checks, and does not touch other files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.cli.demo import plan
from penstock.cli.demo.findings import examine
from penstock.cli.demo.story import Report
from tests.cli.cli_runner import Cli

# With the pipeline on a busy machine; the demo alone takes about ten seconds.
PATIENCE_SECONDS = 240


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli", "demo", *words]
    # PENSTOCK_URL may name a store with real messages, which the demo must not touch.
    environment = {**os.environ, "PENSTOCK_URL": f"sqlite:///{folder}/precious.db"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE_SECONDS)
def test_the_demo_ends_well_and_starts_clean_again(tmp_path: Path) -> None:
    first = run(tmp_path, "--no-pipeline")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "All checks passed" in first.stdout
    assert "✗" not in first.stdout
    *_, last = first.stdout.rstrip().splitlines()
    assert "serve and open http://localhost:4778" in last, "the demo ends by naming the dashboard"
    second = run(tmp_path, "--json")
    assert second.returncode == 0, second.stdout + second.stderr
    document = json.loads(second.stdout)
    assert document["ok"] is True
    assert document["taken_over"] == plan.VICTIM_COUNT
    assert document["url"] == "sqlite:///penstock-demo/demo.db"
    assert any("the warehouse does not answer" in finding for finding in document["pipeline"]["findings"])
    assert (tmp_path / document["pipeline"]["report"]).read_text().startswith("<!doctype html>")
    assert not (tmp_path / "precious.db").exists()


@pytest.mark.slow
def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock.cli", "demo"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Background jobs of a shell ignore SIGINT, and their children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    while "processes send" not in (line := process.stdout.readline()):
        assert line, "the demo ended early"
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    until_gone(process.pid)


def until_gone(group: int) -> None:
    """Wait until the process group is empty."""
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("processes of the demo are still there")


def test_the_demo_refuses_a_file_that_is_there(cli: Cli) -> None:
    cli.send("orders", '"precious"')
    assert "is there already" in cli.error("demo")
    assert [message["payload"] for message in cli.json("peek", "orders")] == ["precious"]


def test_the_demo_needs_its_folder(cli: Cli) -> None:
    Path("penstock-demo").write_text("a file of mine")
    assert "the demo cannot use penstock-demo" in cli.bare("demo", code=1).stderr
    assert Path("penstock-demo").read_text() == "a file of mine"


@pytest.mark.parametrize("url", ["sqlite:///:memory:", "postgresql://host/db"])
def test_the_demo_needs_a_file(cli: Cli, url: str) -> None:
    assert "several processes on one file" in cli.bare("demo", "--url", url, code=1).stderr


def test_the_checks_of_the_demo_can_fail(cli: Cli) -> None:
    with cli.store() as store:
        for queue in plan.QUEUES:
            store.queue(queue).send({"order": 0})
        store.queue(plan.REPORTS).batch(plan.BATCH).set_end(plan.END)
        findings = examine(store, Report())
    assert not findings.ok
    failing = {verdict.name for verdict in findings.verdicts if not verdict.ok}
    assert {verdict.name for verdict in findings.verdicts} - failing == {"Only the one consumer died"}
