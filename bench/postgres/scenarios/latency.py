"""From send to receive at a steady pace: how long a message is on its way when nobody is busy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import psycopg

import penstock
from bench.finding import Finding, Target, percentile
from bench.postgres.contenders import PENSTOCK, PGMQ
from bench.postgres.field import Field, tell

PER_SECOND = 500
MOST_P99_MILLISECONDS = 20.0


class Line(Protocol):
    """One end sends a time, the other hears it."""

    def send(self, sent_at: float) -> None: ...
    def hear(self) -> list[float]:
        """The times that came, waiting for them up to a second."""

    def finish(self) -> None:
        """Settle what was heard."""

    def close(self) -> None: ...


def run(field: Field) -> Finding:
    lines: dict[str, Callable[[str], Line]] = {PENSTOCK: PenstockLine, PGMQ: PgmqLine}
    data: dict[str, dict[str, float]] = {}
    for contender in field.contenders():
        if contender.name not in lines:
            continue
        tell(f"latency: {contender.name}")
        line = lines[contender.name](field.fresh(contender))
        try:
            samples = _measure(line, max(field.seconds, 5.0))
        finally:
            line.close()
        data[contender.name] = {f"p{share}": percentile(samples, share / 100) * 1000 for share in (50, 99)}
    p99 = data[PENSTOCK]["p99"]
    return Finding(
        name="latency",
        title=f"From send to receive at {PER_SECOND} messages per second, in milliseconds",
        header=["who", "p50", "p99"],
        rows=[[name, f"{one['p50']:.1f}", f"{one['p99']:.1f}"] for name, one in data.items()],
        data=data,
        draw=lambda axes: _draw(axes, data),
        targets=[Target(f"p99 below {MOST_P99_MILLISECONDS:g} ms", p99, p99 < MOST_P99_MILLISECONDS)],
        notes=["pgmq polls inside the server, every 100 ms unless told otherwise, which it was not."],
    )


def _measure(line: Line, seconds: float) -> list[float]:
    samples: list[float] = []
    over = threading.Event()

    def listen() -> None:
        while not over.is_set():
            heard = line.hear()
            now = time.perf_counter()
            samples.extend(now - sent_at for sent_at in heard)
            line.finish()

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    for due in _paced(seconds):
        line.send(due)
    over.set()
    listener.join()
    return samples[PER_SECOND:]  # the first second warms up


def _draw(axes: Any, data: dict[str, dict[str, float]]) -> None:
    for share in ("p99", "p50"):
        axes.bar([*data], [one[share] for one in data.values()], label=share)
    axes.set(title=f"Send to receive at {PER_SECOND} messages per second", ylabel="ms", yscale="log")
    axes.legend()


def _paced(seconds: float) -> Iterator[float]:
    began = time.perf_counter()
    for number in range(int(seconds * PER_SECOND)):
        due = began + number / PER_SECOND
        time.sleep(max(0, due - time.perf_counter()))
        yield time.perf_counter()


class PenstockLine:
    def __init__(self, url: str) -> None:
        self.sending, self.hearing = penstock.connect(url), penstock.connect(url)
        self.outward, self.inward = self.sending.queue("bench"), self.hearing.queue("bench")
        self.heard: list[penstock.Delivery] = []

    def send(self, sent_at: float) -> None:
        self.outward.send(repr(sent_at).encode())

    def hear(self) -> list[float]:
        self.heard = self.inward.receive(limit=100, wait_seconds=1)
        return [float(delivery.payload) for delivery in self.heard]

    def finish(self) -> None:
        if self.heard:
            self.inward.ack_many(self.heard)

    def close(self) -> None:
        self.sending.close()
        self.hearing.close()


class PgmqLine:
    def __init__(self, url: str) -> None:
        self.sending = psycopg.connect(url, autocommit=True)
        self.hearing = psycopg.connect(url, autocommit=True)
        self.heard: list[int] = []

    def send(self, sent_at: float) -> None:
        self.sending.execute("select pgmq.send('bench', %s::jsonb)", (repr(sent_at),))

    def hear(self) -> list[float]:
        rows = self.hearing.execute("select msg_id, message from pgmq.read_with_poll('bench', 60, 100, 1)").fetchall()
        self.heard = [row[0] for row in rows]
        return [float(row[1]) for row in rows]

    def finish(self) -> None:
        if self.heard:
            self.hearing.execute("select pgmq.archive('bench', %s::bigint[])", (self.heard,))

    def close(self) -> None:
        self.sending.close()
        self.hearing.close()
