"""What open tabs take from a worker: it works in turns, with nobody watching and with several tabs open.

A tab is what a browser does with a page: its stream of events, and the page read again when something has changed. The
browser itself is left out: it would run on the machine of who watches.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier, Event
from typing import NamedTuple
from urllib.parse import quote

import penstock
from bench.dashboard.aged_store import LARGE
from bench.meter import Meter, database_meter

BATCH = 100
# The interval at which the pages read again.
READ_AGAIN_SECONDS = 3.0
QUEUE = f"/queues/{quote(LARGE)}"
TABS = (
    ("/events", None),
    (f"{QUEUE}/events?group=default", None),
    ("/events/changes", "/dead"),
    ("/events/changes", "/batches"),
    ("/events", None),
)


class Turn(NamedTuple):
    """Messages through send, receive and ack, how long that took, and processor seconds of the worker, of the server
    and of the database meanwhile."""

    messages: float
    seconds: float
    worker: float
    server: float
    database: float

    def __add__(self, other: object) -> Turn:
        assert isinstance(other, Turn)
        return Turn(*(one + another for one, another in zip(self, other, strict=True)))

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    @property
    def cost(self) -> float:
        """Processor microseconds of all together for a message. It wavers less than the rate on a machine that does
        other things too; a rate that waits for the disk loses less than this says, because no core is short."""
        return 1e6 * (self.worker + self.server + self.database) / self.messages


ORDERS = (("alone", "watched", "watched", "alone"), ("watched", "alone", "alone", "watched"))


def measure(url: str, port: int, pid: int, rounds: int, seconds: float) -> list[dict[str, Turn]]:
    """In each round two turns of each kind, so close to each other that what else the machine does is the same for
    both: what becomes steadily faster or slower meanwhile meets both alike."""
    results = []
    with _browser(port) as browser, penstock.connect(url) as store:
        queue = store.queue("work")
        meters = (Meter([os.getpid()]), Meter([pid]), database_meter(url))
        _work(queue, seconds)
        for number in range(rounds):
            turns: dict[str, Turn] = {}
            for turn in ORDERS[number % 2]:
                browser.show(turn == "watched")
                done = _turn(queue, meters, seconds)
                turns[turn] = turns[turn] + done if turn in turns else done
            results.append(turns)
    return results


def _turn(queue: penstock.Queue, meters: Sequence[Meter], seconds: float) -> Turn:
    used, began = [meter.read() for meter in meters], time.perf_counter()
    messages = _work(queue, seconds)
    took = time.perf_counter() - began
    return Turn(messages, took, *(meter.read() - before for meter, before in zip(meters, used, strict=True)))


def _work(queue: penstock.Queue, seconds: float) -> int:
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        queue.send_many([b"x" * 200] * BATCH)
        done += queue.ack_many(queue.receive(limit=BATCH, consumer="worker"))
    return done


# -- the tabs, in a process of their own -------------------------------------------------------------------------------


class Browser(NamedTuple):
    is_open: Event
    is_closed: Event
    changed: Barrier

    def show(self, is_open: bool) -> None:
        """Returns when all tabs are open, or all are closed."""
        if self.is_open.is_set() == is_open:
            return
        wanted, other = (self.is_open, self.is_closed) if is_open else (self.is_closed, self.is_open)
        other.clear()
        wanted.set()
        self.changed.wait(60)


@contextmanager
def _browser(port: int) -> Iterator[Browser]:
    context = multiprocessing.get_context("spawn")
    browser = Browser(context.Event(), context.Event(), context.Barrier(2))
    process = context.Process(target=_run, args=(port, browser), daemon=True)
    process.start()
    try:
        yield browser
    finally:
        process.terminate()
        process.join()


def _run(port: int, browser: Browser) -> None:
    while True:
        browser.is_open.wait()
        tabs = [Tab(port, *tab) for tab in TABS]
        for tab in tabs:
            tab.open()
        browser.changed.wait(60)
        browser.is_closed.wait()
        for tab in tabs:
            tab.close()
        browser.changed.wait(60)


class Tab:
    """A page that is open: it follows its stream, in a thread."""

    def __init__(self, port: int, events: str, page: str | None) -> None:
        self._events, self._page = events, page
        self._stream = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._pages = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._thread = threading.Thread(target=self._follow)

    def open(self) -> None:
        """Returns when it has shown something."""
        self._stream.request("GET", self._events)
        self._answer = self._stream.getresponse()
        assert self._answer.status == 200, self._answer.status
        while not self._answer.readline().startswith(b"data: "):
            continue
        self._thread.start()

    def _follow(self) -> None:
        read_at = 0.0
        while line := self._next_line():
            if not line.startswith(b"data: ") or self._page is None or time.monotonic() - read_at < READ_AGAIN_SECONDS:
                continue
            if json.loads(line[6:])["changed"]:
                read_at = time.monotonic()
                self._pages.request("GET", self._page, headers={"Accept": "text/html"})
                self._pages.getresponse().read()

    def _next_line(self) -> bytes:
        try:
            return self._answer.readline()
        except http.client.IncompleteRead:  # it was closed
            return b""

    def close(self) -> None:
        """Close at once, not at the next event."""
        self._stream.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._stream.close()
        self._pages.close()
