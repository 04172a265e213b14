"""A store opened before a fork: the child gets a clear error, and the parent's store stays intact."""

from __future__ import annotations

import os
import signal
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import penstock
from penstock import PenstockError

FINE, REFUSED, BROKEN = 0, 3, 4


def in_a_child(act: Callable[[], object]) -> int:
    """The exit code of a forked child that did it: fine, refused with an error of Penstock, or broken."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what this is about
        child = os.fork()
    if child == 0:
        code = BROKEN
        try:
            act()
            code = FINE
        except PenstockError as error:
            code = REFUSED if "fork" in str(error) or "process" in str(error) else BROKEN
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def test_a_store_used_after_a_fork_works_or_says_why_not(tmp_path: Path) -> None:
    with penstock.connect(f"sqlite:///{tmp_path}/store.db") as store:
        queue = store.queue("work")
        queue.send(b"before")
        answer = in_a_child(lambda: queue.send(b"from the child"))
        assert answer in (FINE, REFUSED)
        queue.send(b"after")
        sent = [b"before", b"from the child", b"after"] if answer == FINE else [b"before", b"after"]
        assert [one.payload for one in queue.receive(limit=10)] == sent
        assert all(check.level != "error" for check in store.doctor())


def test_a_child_that_connects_anew_works_beside_its_parent(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with penstock.connect(url) as store:
        queue = store.queue("work")
        queue.send(b"before")
        for number in range(5):
            assert in_a_child(lambda: _send_and_close(url)) == FINE
            queue.send(str(number).encode())
        assert queue.stats("default").total == 11
        assert len(queue.receive(limit=100)) == 11
        assert all(check.level != "error" for check in store.doctor())


def _send_and_close(url: str) -> None:
    with penstock.connect(url) as store:
        store.queue("work").send(b"from a child")


def test_a_child_that_registers_is_not_taken_for_its_parent(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with penstock.connect(url) as store:
        store.queue("work").register()
        assert in_a_child(lambda: _register(url)) == FINE
        assert [consumer.living for consumer in store.consumers()] == [2, 2]


def _register(url: str) -> None:
    with penstock.connect(url) as store:
        store.queue("work").register()


def test_a_fork_in_the_middle_of_other_threads_work_leaves_the_child_a_working_store(tmp_path: Path) -> None:
    """SQLite locks held by another thread at the fork are never released in the child."""
    with penstock.connect(f"sqlite:///{tmp_path}/store.db") as store:
        queue, idle = store.queue("work"), store.queue("idle")
        over = threading.Event()
        busy = [
            threading.Thread(target=_again_and_again, args=(over, act))
            for act in (lambda: queue.send(b"busy"), queue.stats, lambda: idle.receive(wait_seconds=0.02))
        ]
        for thread in busy:
            thread.start()
        try:
            answers = [in_a_child(lambda: _in_time(lambda: queue.send(b"from a child"))) for _ in range(40)]
        finally:
            over.set()
            for thread in busy:
                thread.join()
        assert answers == [FINE] * 40
        assert [one.payload for one in queue.receive(limit=1_000_000)].count(b"from a child") == 40


def _again_and_again(over: threading.Event, act: Callable[[], object]) -> None:
    while not over.is_set():
        act()


def _in_time(act: Callable[[], object]) -> None:
    """A child that hangs ends by a signal, which its parent sees."""
    signal.alarm(10)
    act()
