"""Commits of other processes in a quiet time, in which nobody looks at the file until the kernel tells."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from penstock import Store
from penstock.engines.sqlite import hearing, watching
from penstock.engines.sqlite.watching import FileWatch

PATIENCE_SECONDS = 30
SEND = "import sys, penstock; penstock.connect(sys.argv[1]).queue('orders').send('from elsewhere')"


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first look on, and without one for safety."""
    if sys.platform != "linux":
        pytest.skip("only Linux tells that a file is written to")
    monkeypatch.setattr(watching, "QUIET_LOOKS", 0)
    monkeypatch.setattr(watching, "SAFETY_LOOK_SECONDS", 10 * PATIENCE_SECONDS)


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Released whenever the thread lies down to sleep until it hears something."""
    rests, wait = threading.Semaphore(0), hearing.Ear.wait

    def told(self: hearing.Ear, seconds: float) -> bool:
        rests.release()
        return wait(self, seconds)

    monkeypatch.setattr(hearing.Ear, "wait", told)
    return rests


@pytest.fixture
def waiting(store: Store, rests: threading.Semaphore) -> Iterator[threading.Event]:
    """Somebody waits for a commit; set when it has come."""
    engine, heard = store.engine, threading.Event()
    store.queue("orders").stats()
    seen = engine.seen()

    def wait() -> None:
        # The first one is no commit: it is for what was committed before anybody listened.
        before = engine.wait(seen, PATIENCE_SECONDS)
        if engine.wait(before, PATIENCE_SECONDS) != before:
            heard.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    yield heard
    store.close()
    thread.join()


def send_from_elsewhere(url: str) -> None:
    subprocess.run([sys.executable, "-c", SEND, url], check=True, timeout=PATIENCE_SECONDS)


def test_a_commit_of_another_process_is_heard(
    url: str, store: Store, waiting: threading.Event, rests: threading.Semaphore
) -> None:
    assert rests.acquire(timeout=PATIENCE_SECONDS)
    assert not waiting.is_set()
    send_from_elsewhere(url)
    assert waiting.wait(PATIENCE_SECONDS)


def test_an_ear_that_missed_a_commit_is_not_trusted_again(
    url: str, store: Store, waiting: threading.Event, rests: threading.Semaphore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rests.acquire(timeout=PATIENCE_SECONDS)
    watch, given_up = store.engine.watch, threading.Event()  # type: ignore[attr-defined]
    assert isinstance(watch, FileWatch)
    assert watch._ear is not None
    monkeypatch.setattr(watch, "_cover_up", given_up.set)
    monkeypatch.setattr(hearing.Ear, "has_heard", lambda self: False)
    send_from_elsewhere(url)
    assert waiting.wait(PATIENCE_SECONDS)
    assert given_up.wait(PATIENCE_SECONDS)


def test_closing_does_not_wait_for_something_to_be_heard(
    store: Store, waiting: threading.Event, rests: threading.Semaphore
) -> None:
    assert rests.acquire(timeout=PATIENCE_SECONDS)
    store.close()
    assert not waiting.is_set()
    assert "penstock-watch" not in {thread.name for thread in threading.enumerate()}


def test_there_are_no_ears_for_what_is_not_there() -> None:
    with pytest.raises(OSError):
        hearing.Ear("/nowhere/at-all-db-wal")
