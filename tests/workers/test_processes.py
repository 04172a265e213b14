"""Handlers in processes: start, signals and exit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from tests.architecture.sources import ROOT
from tests.workers import import_handlers
from tests.workers.conftest import Start, await_until, events
from tests.workers.hanging_handler import is_alive


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory through which test and children communicate."""
    monkeypatch.setenv("STARTING_FOLDER", str(tmp_path))
    return tmp_path


@pytest.fixture
def program(url: str, store: penstock.Store, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Runs `penstock worker` as the leader of its own process group, as service managers do."""
    words = ["worker", "tests.workers.import_handlers:app", "--url", url, "--grace-seconds", "20"]
    member = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", *words],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
        start_new_session=True,
    )
    yield member
    if member.poll() is None:
        os.killpg(member.pid, signal.SIGKILL)
    member.communicate()


def began(folder: Path) -> list[int]:
    return [int(path.name.split("-")[1]) for path in folder.glob("began-*")]


def test_a_child_that_cannot_import_its_handler_stops_the_worker_and_costs_no_message(
    store: penstock.Store, folder: Path
) -> None:
    (folder / "broken").touch()
    queue = store.queue("work", delivery="at_most_once", max_retries=0)
    ids = queue.send_many(["return"] * 3)
    app = penstock.App()
    app.add("work", import_handlers.handle, run="process")
    with pytest.raises(penstock.HandlerUnavailable, match=r"handler handle of queue 'work' .*libfoo\.so is not there"):
        penstock.Worker(store, app).run()
    assert [events(queue, one) for one in ids] == [["send"]] * 3
    assert store.consumers() == []


def test_messages_are_received_when_a_child_is_ready_and_not_before(
    store: penstock.Store, start: Start, folder: Path
) -> None:
    (folder / "slow").touch()
    queue = store.queue("work", delivery="at_most_once")
    ids = queue.send_many(["return"] * 3)
    app = penstock.App()
    app.add("work", import_handlers.handle, run="process", concurrency=2)
    worker = start(app)
    await_until(lambda: list(folder.glob("importing-*")))
    assert [events(queue, one) for one in ids] == [["send"]] * 3
    (folder / "slow").unlink()
    await_until(lambda: queue.stats("default").done == 3)
    # Counted after the commit.
    await_until(lambda: worker.status()[0].done == {"ack": 3})


def test_a_worker_that_stops_while_its_children_start_does_not_wait_for_them(
    store: penstock.Store, start: Start, folder: Path
) -> None:
    (folder / "slow").touch()
    message = store.queue("work").send("return")
    app = penstock.App()
    app.add("work", import_handlers.handle, run="process", concurrency=2)
    worker = start(app, grace_seconds=30)
    await_until(lambda: list(folder.glob("importing-*")))
    worker.stop()
    (importing,) = folder.glob("importing-*")
    await_until(lambda: not is_alive(int(importing.name.split("-")[1])))
    assert events(store.queue("work"), message) == ["send"]


def test_a_backlog_gets_as_many_children_as_the_concurrency_says(
    store: penstock.Store, start: Start, folder: Path
) -> None:
    store.queue("work").send_many(["wait"] * 4)
    app = penstock.App()
    app.add("work", import_handlers.handle, run="process", concurrency=3)
    start(app)
    await_until(lambda: len(began(folder)) == 3)
    assert store.queue("work").stats("default").in_progress == 3
    (folder / "go").touch()
    await_until(lambda: store.queue("work").stats("default").done == 4)


def test_handlers_finish_when_their_whole_process_group_is_terminated(
    store: penstock.Store, program: subprocess.Popen[str], folder: Path
) -> None:
    queue = store.queue("work")
    ids = queue.send_many(["wait"] * 2)
    await_until(lambda: len(began(folder)) == 2)
    os.killpg(program.pid, signal.SIGTERM)
    assert program.stderr is not None
    while "SIGTERM: stopping" not in (line := program.stderr.readline()):
        assert line, "it ended without hearing the signal"
    assert all(is_alive(pid) for pid in began(folder))
    (folder / "go").touch()
    program.communicate(timeout=60)
    assert program.returncode == 0
    assert [events(queue, one) for one in ids] == [["send", "receive", "ack"]] * 2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_child_ends_with_a_worker_that_was_killed_whatever_its_handler_does(
    store: penstock.Store, program: subprocess.Popen[str], folder: Path
) -> None:
    store.queue("work").send("hold the lock")
    await_until(lambda: began(folder))
    program.kill()
    program.wait(60)
    await_until(lambda: not is_alive(began(folder)[0]))
