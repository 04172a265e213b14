"""`penstock worker`: targets, options, signals and exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from tests.architecture.sources import ROOT
from tests.cli.cli_runner import Cli
from tests.ports import free_port
from tests.workers.conftest import await_until, events

TARGET = "tests.workers.tasks_app:app"


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    for name in ("PENSTOCK_URL", "PENSTOCK_CONFIG", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return Cli(tmp_path)


@pytest.fixture
def program(cli: Cli) -> Iterator[subprocess.Popen[str]]:
    """Runs `penstock worker` in a child process."""
    words = ["worker", TARGET, "--url", cli.url, "--log-format", "json", "--sweep-seconds", "0.2"]
    member = run_program(words)
    yield member
    if member.poll() is None:
        os.kill(member.pid, signal.SIGKILL)
    member.communicate()


def run_program(words: list[str], folder: Path = ROOT) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
    )


def test_once_runs_due_messages_and_prints_the_counts(cli: Cli) -> None:
    with cli.store() as store:
        good, bad = store.queue("orders").send_many([{"order": 1}, {"fail": True}])
    (status,) = cli.json("worker", TARGET, "--once", "--log-level", "error")
    assert (status["queue"], status["handler"], status["done"]) == ("orders", "take_order", {"ack": 1, "nak": 1})
    with cli.store() as store:
        queue = store.queue("orders")
        assert queue.audit(bad)[-1].reason == "ValueError: no such customer"
        assert events(queue, good)[-1] == "ack"
        assert queue.policy().lease_seconds == 17
        assert [schedule.name for schedule in store.schedules()] == ["nightly"]


WRONG = [
    ("no.such.module:app", "No module named 'no'"),
    ("tests.workers.broken_module:app", "ZeroDivisionError: division by zero"),
    ("tests.workers.tasks_app:ap", "it has app, empty"),
    ("tests.workers.tasks_app:number", "a worker runs a penstock.App"),
    ("tests.workers.tasks_app:empty", "there is no handler"),
    (":app", "names no module"),
]


@pytest.mark.parametrize(("target", "told"), WRONG, ids=[target for target, _ in WRONG])
def test_a_target_that_cannot_be_run_is_an_error_in_one_line(cli: Cli, target: str, told: str) -> None:
    assert told in cli.error("worker", target)


def test_an_error_in_the_users_module_names_its_line(cli: Cli) -> None:
    line = cli.error("worker", "tests.workers.broken_module:app")
    assert "broken_module.py, line 5" in line


@pytest.mark.parametrize(
    ("words", "told", "code"),
    [
        (["--slots", "many"], "not a list such as 0:10,5:4", 2),
        (["--slots", "0:1,1:2"], "urgent work must never find less", 1),
        (["--queue", "order"], "did you mean 'orders'", 1),
        (["--log-level", "loud"], "none of debug", 2),
        (["--log-format", "jason"], "did you mean 'json'", 2),
        (["--concurrency", "0"], "concurrency", 1),
        (["--heartbeat-seconds", "0"], "heartbeat_seconds", 1),
    ],
)
def test_options_that_make_no_sense_are_refused(cli: Cli, words: list[str], told: str, code: int) -> None:
    assert told in cli.error("worker", TARGET, *words, code=code)


@pytest.mark.parametrize(
    "words",
    [
        ["--queue", "orders"],
        ["--concurrency", "8"],
        ["--slots", "3"],
        ["--grace-seconds", "25"],
        ["--metrics-port", "9464"],
        ["--trace"],
        ["--url", "sqlite:///other.db"],
    ],
    ids=lambda words: words[0],
)
def test_an_option_that_a_worker_target_cannot_follow_is_refused(
    cli: Cli, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKS_URL", cli.url)
    result = cli.bare("worker", "tests.workers.custom_worker:worker", "--once", *words, code=1)
    assert f"leave out {words[0]}, or name an App" in result.stderr


def test_a_worker_target_runs_with_its_own_settings(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKS_URL", cli.url)
    monkeypatch.delitem(sys.modules, "tests.workers.custom_worker", raising=False)
    with cli.store() as store:
        store.queue("orders").send({"order": 1})
    result = cli.bare("worker", "tests.workers.custom_worker:worker", "--once", "--log-level", "error", "--json")
    assert json.loads(result.stdout)[0]["done"] == {"ack": 1}


def test_an_unavailable_store_is_retried_and_then_reported(cli: Cli, tmp_path: Path) -> None:
    began = time.monotonic()
    words = ["worker", TARGET, "--patience-seconds", "0.5", "--url", f"sqlite:///{tmp_path}/no/such/folder.db"]
    result = cli.bare(*words, code=1)
    assert "there is no directory" in result.stderr
    assert time.monotonic() - began < 20


def test_sigterm_lets_running_handlers_finish(cli: Cli, program: subprocess.Popen[str], tmp_path: Path) -> None:
    with cli.store() as store:
        queue = store.queue("orders")
        message = queue.send({"touch": str(tmp_path / "ran"), "seconds": 0.7})
        await_until((tmp_path / "ran").exists)
        os.kill(program.pid, signal.SIGTERM)
        _, errors = program.communicate(timeout=60)
        assert program.returncode == 0
        assert events(queue, message) == ["send", "receive", "ack"]
    records = [json.loads(line) for line in errors.splitlines()]
    packing = next(record for record in records if record["message"] == "packing")
    assert (packing["message_id"], packing["queue"], packing["attempt"]) == (message, "orders", 1)
    assert any(record["message"].endswith("stopped") for record in records)


def test_a_second_signal_stops_at_once_and_releases_messages(
    cli: Cli, program: subprocess.Popen[str], tmp_path: Path
) -> None:
    with cli.store() as store:
        queue = store.queue("orders")
        message = queue.send({"touch": str(tmp_path / "ran"), "seconds": 60})
        await_until((tmp_path / "ran").exists)
        os.kill(program.pid, signal.SIGTERM)
        await_heard(program)
        os.kill(program.pid, signal.SIGTERM)
        began = time.monotonic()
        program.communicate(timeout=60)
        assert time.monotonic() - began < 20
        assert events(queue, message) == ["send", "receive", "release"]


@pytest.mark.parametrize(
    ("grace", "signals"),
    [("0.5", [signal.SIGTERM]), ("60", [signal.SIGTERM, signal.SIGTERM]), ("60", [signal.SIGQUIT])],
    ids=["grace", "twice", "quit"],
)
def test_signals_are_handled_while_a_handler_blocks_the_event_loop(
    cli: Cli, tmp_path: Path, grace: str, signals: list[signal.Signals]
) -> None:
    with cli.store() as store:
        queue = store.queue("blocking")
        message = queue.send(str(tmp_path / "ran"))
        program = run_program(
            ["worker", "tests.workers.blocking_handler:app", "--url", cli.url, "--grace-seconds", grace]
        )
        try:
            await_until((tmp_path / "ran").exists)
            for number in signals:
                os.kill(program.pid, number)
                await_heard(program, number)
            program.communicate(timeout=60)
            assert program.returncode == 0
        finally:
            if program.poll() is None:
                program.kill()
                program.communicate()
        assert events(queue, message) == ["send", "receive", "release"]


def await_heard(program: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> None:
    """Two pending signals of the same number are delivered as one."""
    assert program.stderr is not None
    while f"{number.name}: stopping" not in (line := program.stderr.readline()):
        assert line, "it ended without hearing the signal"


def test_metrics_are_served_while_it_runs(cli: Cli, tmp_path: Path) -> None:
    with cli.store() as store:
        store.queue("orders").send({"order": 1})
    port = free_port()
    words = ["worker", TARGET, "--url", cli.url, "--metrics-port", str(port)]
    member = run_program(words)
    try:
        sample = 'penstock_settled_total{group="default",queue="orders",settlement="ack"} 1.0'
        await_until(lambda: sample in scrape(port))
        assert 'penstock_handler_seconds_count{group="default",queue="orders"} 1.0' in scrape(port)
        assert 'penstock_handlers_running{group="default",queue="orders"} 0.0' in scrape(port)
    finally:
        os.kill(member.pid, signal.SIGTERM)
        member.communicate(timeout=60)


def scrape(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            text: str = answer.read().decode()
    except OSError:
        return ""
    return text


def test_reload_restarts_the_worker_when_code_changes(cli: Cli, tmp_path: Path) -> None:
    code = (
        "import penstock\napp = penstock.App()\n"
        '@app.handler("orders")\ndef handle(delivery):\n    raise penstock.Reject("{}")\n'
    )
    (tmp_path / "shop.py").write_text(code.format("first"))
    with cli.store() as store:
        queue = store.queue("orders")
        queue.send(b"1")
        member = run_program(["worker", "shop", "--reload", "--url", cli.url], tmp_path)
        try:
            await_until(lambda: len(queue.dead_letters()) == 1)
            (tmp_path / "shop.py").write_text(code.format("second"))
            queue.send(b"2")
            await_until(lambda: "second" in [letter.reason for letter in queue.dead_letters()] or resend(queue))
        finally:
            os.kill(member.pid, signal.SIGTERM)
            member.communicate(timeout=60)
        assert member.returncode == 0
        assert store.consumers() == []


def resend(queue: penstock.Queue) -> bool:
    """The old process may have received it: send another one for the new process."""
    if not queue.peek(1):
        queue.send(b"again")
        time.sleep(0.3)
    return False


def test_status_is_watched_with_rates_and_an_estimate(cli: Cli) -> None:
    with cli.store() as store:
        queue = store.queue("orders")
        queue.send_many([b"x"] * 100)
        member = run_program(["status", "--watch", "--every-seconds", "0.2", "--json", "--url", cli.url])
        try:
            assert member.stdout is not None
            first = json.loads(member.stdout.readline())[0]
            queue.ack_many(queue.receive(limit=40))
            last = json.loads(member.stdout.readline())[0]
            while last["backlog"] == 100:
                last = json.loads(member.stdout.readline())[0]
        finally:
            os.kill(member.pid, signal.SIGINT)
            member.communicate(timeout=60)
    assert (first["backlog"], last["backlog"], first["drain_seconds"]) == (100, 60, None)
    assert last["finished_per_second"] > 0
    assert last["drain_seconds"] == pytest.approx(60 / last["finished_per_second"])
    assert member.returncode == 0


def test_failed_attempts_are_watched_before_messages_die(cli: Cli) -> None:
    with cli.store() as store:
        queue = store.queue("orders")
        queue.send_many([b"x"] * 10)
        member = run_program(["status", "--watch", "--every-seconds", "0.2", "--json", "--url", cli.url])
        try:
            assert member.stdout is not None
            last = first = json.loads(member.stdout.readline())[0]
            for delivery in queue.receive(limit=4):
                delivery.nak("busy")
            while not last["failed_per_second"]:
                last = json.loads(member.stdout.readline())[0]
        finally:
            os.kill(member.pid, signal.SIGINT)
            member.communicate(timeout=60)
        assert (first["failed_per_second"], last["dead"], last["backlog"]) == (0, 0, 10)
        assert cli.json("status")[0]["failed_attempts"] == 4


def test_progress_shows_what_a_worker_does(cli: Cli) -> None:
    with cli.store() as store:
        store.queue("orders").send_many([{"order": 1}] * 5)
    result = cli("worker", TARGET, "--once", "--progress")
    assert "5 messages settled" in result.stdout
    assert "take_order" in result.stdout
    with cli.store() as store:
        store.queue("orders").send({"order": 1})
    assert "1 message settled" in cli("worker", TARGET, "--once", "--progress").stdout
