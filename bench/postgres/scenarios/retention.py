"""The effect of retention on senders: finished messages are trimmed during sends at a steady rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

import penstock
from bench.finding import Finding, Target, percentile
from bench.plan import payload
from bench.postgres.contenders import CONTENDERS, PENSTOCK
from bench.postgres.field import Field, tell

BATCH = 1000
FINISHED = 1_000_000
QUICK_FINISHED = 100_000
HISTORY_SECONDS = 4.0
SWEEP_SECONDS = 0.25
PER_SECOND = 200
MOST_MILLISECONDS = 100.0
SIZE = """
    select sum(pg_total_relation_size(c.oid))
    from pg_class as c
    where c.relnamespace = 'penstock'::regnamespace and c.relkind = 'r' and c.relname in ('log', 'claim', 'step')
"""


def run(field: Field) -> Finding:
    count = QUICK_FINISHED if field.is_quick else FINISHED
    url = field.fresh(CONTENDERS[PENSTOCK], "_retention")
    tell(f"retention: {count:,} messages are sent and finished")
    with penstock.connect(url) as store, psycopg.connect(url, autocommit=True) as watcher:
        queue = store.queue("bench", history_seconds=HISTORY_SECONDS)
        _finish(queue, count)
        full = _size(watcher)
        tell("retention: sends, and nothing is trimmed")
        before = _sends(queue, HISTORY_SECONDS)
        tell("retention: sends, while it is trimmed")
        with _sweeping(url):
            while_trimming = _sends(queue, 4 * HISTORY_SECONDS)
        tell("retention: as many once more, in the room of those that went")
        for table in ("log", "claim", "step"):
            watcher.execute(f"vacuum penstock.{table}".encode())
        _finish(queue, count)
        again = _size(watcher)
    longest = max(while_trimming)
    return Finding(
        name="retention",
        title=f"One send, {PER_SECOND} times a second, in milliseconds, while {count:,} finished messages are trimmed",
        header=["", "p50", "p99", "longest", "MB of log, claims and settlements"],
        rows=[_row("before", before, full), _row("while trimming", while_trimming, again)],
        data={"before": before, "while_trimming": while_trimming, "bytes_before": full, "bytes_after": again},
        draw=lambda axes: _draw(axes, before, while_trimming),
        targets=[
            Target(f"no send takes longer than {MOST_MILLISECONDS:g} ms", longest, longest <= MOST_MILLISECONDS),
            Target("as many messages again need no more room, without VACUUM FULL", again / full, again <= full * 1.2),
        ],
    )


def _finish(queue: penstock.Queue, count: int) -> None:
    for _ in range(count // BATCH):
        queue.send_many([payload(number) for number in range(BATCH)])
        queue.ack_many(queue.receive(limit=BATCH))


def _sends(queue: penstock.Queue, seconds: float) -> list[float]:
    """How long each took, in milliseconds."""
    taken = []
    began = time.perf_counter()
    for number in range(int(seconds * PER_SECOND)):
        time.sleep(max(0.0, began + number / PER_SECOND - time.perf_counter()))
        at = time.perf_counter()
        queue.send(payload(number))
        taken.append((time.perf_counter() - at) * 1000)
    return taken


@contextmanager
def _sweeping(url: str) -> Iterator[None]:
    """As a worker or a server does."""
    over = threading.Event()

    def sweep() -> None:
        with penstock.connect(url) as store:
            while not over.wait(SWEEP_SECONDS):
                store.sweep()

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    try:
        yield
    finally:
        over.set()
        sweeper.join()


def _size(watcher: psycopg.Connection[tuple[Any, ...]]) -> int:
    row = watcher.execute(SIZE).fetchone()
    assert row is not None
    return int(row[0])


def _row(name: str, taken: list[float], size: int) -> list[str]:
    shown = [percentile(taken, 0.5), percentile(taken, 0.99), max(taken)]
    return [name, *(f"{one:.1f}" for one in shown), f"{size / 1e6:,.1f}"]


def _draw(axes: Any, before: list[float], while_trimming: list[float]) -> None:
    for label, taken in (("before", before), ("while trimming", while_trimming)):
        axes.plot([place / PER_SECOND for place in range(len(taken))], taken, label=label, linewidth=0.5)
    axes.axhline(MOST_MILLISECONDS, color="grey", linestyle=":")
    axes.set(title="One send while finished messages are trimmed", xlabel="s", ylabel="ms", yscale="log")
    axes.legend()
