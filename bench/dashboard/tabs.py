"""What open tabs take from a worker: it works in turns, with nobody watching and with several tabs open.

A tab is what a browser does with a page: its stream of events, and the page read again when something has changed. The
browser itself is left out: it would run on the machine of who watches.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import penstock
from bench.dashboard.filling import LARGE

BATCH = 100
# As the pages themselves wait between two reads.
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
    """Messages per second through send, receive and ack, processor time of the worker for each, and how much of a core
    the server took meanwhile."""

    rate: float
    worker_microseconds: float
    server_cores: float


def measure(url: str, port: int, pid: int, rounds: int, seconds: float) -> list[dict[str, Turn]]:
    """In each round without and with the tabs, each first in every second round. Short turns close to each other: what
    else the machine does is then the same for both."""
    results = []
    with _browser(port) as browser, penstock.connect(url) as store:
        queue = store.queue("work")
        _work(queue, seconds)
        for number in range(rounds):
            turns = ("alone", "watched") if number % 2 == 0 else ("watched", "alone")
            results.append({turn: _turn(queue, browser, pid, seconds, turn == "watched") for turn in turns})
    return results


def _turn(queue: penstock.Queue, browser: Browser, pid: int, seconds: float, watched: bool) -> Turn:
    browser.show(watched)
    used, began = _cpu_seconds(pid), time.perf_counter()
    rate, microseconds = _work(queue, seconds)
    return Turn(rate, microseconds, (_cpu_seconds(pid) - used) / (time.perf_counter() - began))


def _cpu_seconds(pid: int) -> float:
    # The name in the second field may hold spaces: count from the bracket that closes it.
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _work(queue: penstock.Queue, seconds: float) -> tuple[float, float]:
    done = 0
    used, began = time.process_time(), time.perf_counter()
    while time.perf_counter() - began < seconds:
        queue.send_many([b"x" * 200] * BATCH)
        done += queue.ack_many(queue.receive(limit=BATCH, consumer="worker"))
    return done / (time.perf_counter() - began), 1e6 * (time.process_time() - used) / done


# -- the tabs, in a process of their own -------------------------------------------------------------------------------


class Browser(NamedTuple):
    is_open: Event
    changed: Barrier

    def show(self, is_open: bool) -> None:
        """Returns when all tabs are open, or all are closed."""
        if self.is_open.is_set() == is_open:
            return
        if is_open:
            self.is_open.set()
        else:
            self.is_open.clear()
        self.changed.wait(60)


@contextmanager
def _browser(port: int) -> Iterator[Browser]:
    context = multiprocessing.get_context("spawn")
    browser = Browser(context.Event(), context.Barrier(2))
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
        begun = threading.Barrier(len(TABS) + 1)
        threads = [threading.Thread(target=_tab, args=(port, browser.is_open, begun, *tab)) for tab in TABS]
        for thread in threads:
            thread.start()
        begun.wait(60)
        browser.changed.wait(60)
        for thread in threads:
            thread.join()
        browser.changed.wait(60)


def _tab(port: int, is_open: Event, begun: threading.Barrier, events: str, page: str | None) -> None:
    stream = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    pages = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    stream.request("GET", events)
    answer = stream.getresponse()
    assert answer.status == 200, answer.status
    begun.wait(60)
    read_at = 0.0
    # A sample comes every second, so a tab that is to be closed notices it soon.
    while is_open.is_set() and (line := answer.readline()):
        if not line.startswith(b"data: ") or page is None or time.monotonic() - read_at < READ_AGAIN_SECONDS:
            continue
        if json.loads(line[6:])["changed"]:
            read_at = time.monotonic()
            pages.request("GET", page, headers={"Accept": "text/html"})
            pages.getresponse().read()
    stream.close()
    pages.close()
