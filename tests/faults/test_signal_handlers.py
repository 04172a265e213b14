"""A signal handler that raises, as Ctrl-C and many time limits do. Python runs it when the call of a library in C
returns, so the exception comes after the statement has had its effect: the store must go on for everybody."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random
from threading import RLock
from types import FrameType
from typing import Any

import apsw
import pytest

import penstock
from penstock.engines.sqlite import write
from tests.conformance.clock import Clock
from tests.faults.verb_calls import CALLS, Scene, drain, prepare

VERBS = ("send", "send with options", "receive of all", "ack_many", "mixed settle", "start of a batch", "sweep", "trim")
LOOKS: dict[str, Callable[[Scene], Any]] = {
    "stats": lambda scene: scene.queue.stats(),
    "peek": lambda scene: scene.queue.peek(),
}


INTERRUPTED = (apsw.Connection, apsw.Cursor, type(RLock()))


class Interrupted(BaseException):
    """As KeyboardInterrupt, nothing that a library may swallow."""


class Interrupter:
    """Raises when the n-th call of apsw or of a lock returns to Penstock, or a function of its write transaction
    begins: there, too, Python runs signal handlers, and no `with` block sees what they raise."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: FrameType, event: str, called: Any) -> None:
        owner = getattr(called, "__self__", None) if event == "c_return" else None
        begins = event == "call" and frame.f_code.co_filename == write.__file__
        if begins or (isinstance(owner, INTERRUPTED) and frame.f_code.co_name != "end_interrupted"):
            self.left -= 1
            if self.left == 0:
                sys.setprofile(None)
                raise Interrupted


@pytest.mark.parametrize("verb", [*VERBS, *LOOKS])
def test_a_call_that_a_signal_handler_ends_leaves_no_transaction_open(
    verb: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, clock = tmp_path_factory.mktemp("store") / "store.db", Clock()
    call = {**CALLS, **LOOKS}[verb]
    with penstock.connect(f"sqlite:///{path}", clock=clock, random=Random(7).random) as store:
        scene = prepare(store, clock)
        interrupted = 0
        while is_interrupted(interrupted + 1, lambda: call(scene)):
            interrupted += 1
            other = apsw.Connection(str(path))
            other.execute("begin immediate").fetchall()
            other.close()
            with ThreadPoolExecutor(1) as another_thread:
                another_thread.submit(store.queue("others").send, b"not blocked").result()
        assert interrupted > 0
        store.queue("orders").send(b"works")
        drain(store, clock)
    with penstock.connect(f"sqlite:///{path}", clock=clock) as again:
        assert again.queue("orders").stats("default").available == 0
        assert all(check.level != "error" for check in again.doctor())


def test_a_send_in_the_except_block_of_an_interrupted_one_is_committed(tmp_path: Path) -> None:
    """The traceback keeps the frames of the interrupted call, and with them what only their end would release."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with penstock.connect(url) as store, penstock.connect(url) as other:
        queue = store.queue("orders")
        queue.send(b"first")
        for at in count(1):
            sys.setprofile(Interrupter(at))
            try:
                queue.send(b"interrupted")
                break
            except Interrupted:
                sent = queue.send(b"sent")
                assert other.queue("orders").find(sent).payload == b"sent"
            finally:
                sys.setprofile(None)
        assert at > 1


def test_a_commit_is_flushed_after_a_signal_handler_has_ended_a_receive(tmp_path: Path) -> None:
    with penstock.connect(f"sqlite:///{tmp_path / 'store.db'}") as store:
        queue = store.queue("orders")
        writer = store.engine.database.writer  # type: ignore[attr-defined]  # as only its own connection can tell
        interrupted = 0
        queue.send(b"before")
        while is_interrupted(interrupted + 1, queue.receive):
            interrupted += 1
            queue.send(b"after")
            assert writer.execute("pragma synchronous").fetchall() == [(2,)]
        assert interrupted > 0


def is_interrupted(at: int, call: Callable[[], object]) -> bool:
    """A call that was interrupted after its commit has happened, and is refused or does nothing when made again."""
    interrupter = Interrupter(at)
    sys.setprofile(interrupter)
    try:
        with suppress(penstock.PenstockError):
            call()
    except Interrupted:
        return True
    finally:
        sys.setprofile(None)
    return False
