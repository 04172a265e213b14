"""Response times of all pages on an open connection."""

from __future__ import annotations

import http.client
import statistics
import time
from urllib.parse import quote

import penstock
from bench.dashboard.aged_store import LARGE, SMALL


def paths(url: str) -> dict[str, str]:
    """Every page, for the large queue and for the small, older one."""
    with penstock.connect(url) as store:
        orders = store.queue(LARGE)
        waiting, letter = orders.peek(1)[0].id, orders.dead_letters(limit=1)[0].id
        finished = orders.archive(limit=1, outcome=None)[0].message.id
    large, small = quote(LARGE), quote(SMALL)
    return {
        "overview": "/",
        "queue": f"/queues/{large}",
        "queue, small": f"/queues/{small}",
        "message, waiting": f"/queues/{large}/messages/{waiting}",
        "message, finished": f"/queues/{large}/messages/{finished}",
        "message, dead": f"/queues/{large}/messages/{letter}",
        "messages": f"/search?queue={large}",
        "messages, small": f"/search?queue={small}",
        "search, id": f"/search?q={waiting}",
        "search, name": "/search?q=nightly",
        "search, time": f"/search?queue={large}&since=2020-01-01T00:00:00",
        "search, succeeded": f"/search?queue={large}&outcome=succeeded",
        "search, succeeded, small": f"/search?queue={small}&outcome=succeeded",
        "search, rejected": f"/search?queue={large}&outcome=rejected",
        "search, expired (none)": f"/search?queue={large}&outcome=expired",
        "search, batch": f"/search?queue={large}&batch=nightly",
        "dead letters": "/dead",
        "dead letters, queue": f"/queues/{large}/dead",
        "dead letters, small": f"/queues/{small}/dead",
        "batches": "/batches",
        "schedules": "/schedules",
        "consumers": "/consumers",
        "pipeline": "/pipeline",
    }


def measure(port: int, wanted: dict[str, str], rounds: int) -> dict[str, dict[str, float]]:
    taken: dict[str, list[float]] = {name: [] for name in wanted}
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for _ in range(rounds):
        for name, path in wanted.items():
            began = time.perf_counter()
            link.request("GET", path, headers={"Accept": "text/html"})
            answer = link.getresponse()
            answer.read()
            taken[name].append((time.perf_counter() - began) * 1000)
            assert answer.status in (200, 303), f"{path}: {answer.status}"
    link.close()
    return {name: {"median": statistics.median(all_), "longest": max(all_)} for name, all_ in taken.items()}
