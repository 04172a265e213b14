"""Commits of other processes while the store is idle and nothing polls until inotify reports a write."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from penstock import Store
from penstock.engines.sqlite import notify
from penstock.engines.sqlite.notify import FileWatch, WriteEvents

PATIENCE_SECONDS = 30
SEND = "import sys, penstock; penstock.connect(sys.argv[1]).queue('orders').send('from elsewhere')"


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is idle from the first poll on, and there is no safety poll."""
    if sys.platform != "linux":
        pytest.skip("only Linux has inotify")
    monkeypatch.setattr(notify, "IDLE_POLLS", 0)
    monkeypatch.setattr(notify, "SAFETY_POLL_SECONDS", 10 * PATIENCE_SECONDS)


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Released whenever the thread begins to wait for a write event."""
    rests, wait = threading.Semaphore(0), WriteEvents.wait

    def counted_wait(self: WriteEvents, seconds: float) -> bool:
        rests.release()
        return wait(self, seconds)

    monkeypatch.setattr(WriteEvents, "wait", counted_wait)
    return rests


@pytest.fixture
def waiting(store: Store, rests: threading.Semaphore) -> Iterator[threading.Event]:
    """A thread waits for a commit; the event is set when it has noticed one."""
    engine, heard = store.engine, threading.Event()
    store.queue("orders").stats()
    seen = engine.seen()

    def wait() -> None:
        # The first wake-up is no commit: it covers commits before the polling thread started.
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


def test_a_commit_of_another_process_ends_the_wait(
    url: str, store: Store, waiting: threading.Event, rests: threading.Semaphore
) -> None:
    assert rests.acquire(timeout=PATIENCE_SECONDS)
    assert not waiting.is_set()
    send_from_elsewhere(url)
    assert waiting.wait(PATIENCE_SECONDS)


def test_write_events_that_missed_a_commit_are_closed(
    url: str, store: Store, waiting: threading.Event, rests: threading.Semaphore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rests.acquire(timeout=PATIENCE_SECONDS)
    watch, given_up = store.engine.wakeup, threading.Event()  # type: ignore[attr-defined]
    assert isinstance(watch, FileWatch)
    assert watch._events is not None
    monkeypatch.setattr(watch, "_close_events", given_up.set)
    monkeypatch.setattr(WriteEvents, "poll", lambda self: False)
    send_from_elsewhere(url)
    assert waiting.wait(PATIENCE_SECONDS)
    assert given_up.wait(PATIENCE_SECONDS)


def test_closing_does_not_wait_for_a_write_event(
    store: Store, waiting: threading.Event, rests: threading.Semaphore
) -> None:
    assert rests.acquire(timeout=PATIENCE_SECONDS)
    store.close()
    assert not waiting.is_set()
    assert "penstock-watch" not in {thread.name for thread in threading.enumerate()}


def test_write_events_of_a_missing_file_are_refused() -> None:
    with pytest.raises(OSError):
        WriteEvents("/nowhere/at-all-db-wal")
