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
from multiprocessing.synchronize import Event
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
    """Messages per second through send, receive and ack, and how much of a core the server took meanwhile."""

    rate: float
    server_cores: float


def measure(url: str, port: int, pid: int, rounds: int, seconds: float) -> list[dict[str, Turn]]:
    """In each round without and with the tabs, each first in every second round."""
    results = []
    for number in range(rounds):
        turns = ("alone", "watched") if number % 2 == 0 else ("watched", "alone")
        results.append({turn: _turn(url, port, pid, seconds, turn == "watched") for turn in turns})
    return results


def _turn(url: str, port: int, pid: int, seconds: float, watched: bool) -> Turn:
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    watching = context.Process(target=_watch, args=(port, stop)) if watched else None
    if watching is not None:
        watching.start()
        time.sleep(3)  # the streams are open, and the server looks every second
    try:
        used, began = _cpu_seconds(pid), time.perf_counter()
        rate = _work(url, seconds)
        return Turn(rate, (_cpu_seconds(pid) - used) / (time.perf_counter() - began))
    finally:
        stop.set()
        if watching is not None:
            watching.join()


def _cpu_seconds(pid: int) -> float:
    # The name in the second field may hold spaces: count from the bracket that closes it.
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _work(url: str, seconds: float) -> float:
    done = 0
    with penstock.connect(url) as store:
        queue = store.queue("work")
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            queue.send_many([b"x" * 200] * BATCH)
            done += queue.ack_many(queue.receive(limit=BATCH, consumer="worker"))
        return done / (time.perf_counter() - began)


def _watch(port: int, stop: Event) -> None:
    threads = [threading.Thread(target=_tab, args=(port, stop, *tab), daemon=True) for tab in TABS]
    for thread in threads:
        thread.start()
    stop.wait()


def _tab(port: int, stop: Event, events: str, page: str | None) -> None:
    stream = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    pages = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    stream.request("GET", events)
    answer = stream.getresponse()
    assert answer.status == 200, answer.status
    read_at = 0.0
    while not stop.is_set() and (line := answer.readline()):
        if not line.startswith(b"data: ") or page is None or time.monotonic() - read_at < READ_AGAIN_SECONDS:
            continue
        if json.loads(line[6:])["changed"]:
            read_at = time.monotonic()
            pages.request("GET", page, headers={"Accept": "text/html"})
            pages.getresponse().read()
