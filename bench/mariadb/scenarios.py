"""Rates end to end beside the peers, with a large backlog, and with a caller's transaction held open."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pymysql

import penstock
from bench.crew import at_work
from bench.finding import Finding, Target, shown_spread, spread
from bench.mariadb.contenders import PENSTOCK, prepare, waiting
from bench.mariadb.server import MariadbBenchServer
from bench.penstock_session import QUEUE, PenstockSession
from bench.rounds import ratios

BATCHES = (1, 100, 1000)
LEAST_RATIOS = {1: 1.5, 1000: 20.0}
LEAST_RATE = 40_000
MOST_CHANGE = 0.15
MOST_LOSS = 0.2
HELD_BATCH = 100
PROGRAM = (sys.executable, "-m", "bench.mariadb.role")
CALLERS = (1, 4, 16, 32)
CALLERS_PROGRAM = (sys.executable, "-m", "bench.mariadb.callers")
Measured = dict[str, list[float]]


@dataclass
class Ground:
    """The shared server, and how long each contender works in a turn."""

    server: MariadbBenchServer
    names: Sequence[str]
    seconds: float
    rounds: int
    backlog: int
    held_seconds: float

    def fresh(self, name: str, ending: str = "") -> str:
        url = self.server.fresh(f"bench_{name.replace('-', '_')}{ending}")
        prepare(name, url)
        return url


def end_to_end(ground: Ground) -> Finding:
    urls = {name: ground.fresh(name) for name in ground.names}
    measured = {batch: _turns(ground, urls, batch) for batch in BATCHES}
    peers = [name for name in ground.names if name != PENSTOCK]
    title = "End to end: messages finished per second, 2 producers and 2 consumers"
    rate = statistics.median(measured[1000][PENSTOCK])
    targets = [Target(f"at batch 1,000: at least {LEAST_RATE:,} messages/s", rate, rate >= LEAST_RATE)]
    for batch, least in LEAST_RATIOS.items() if peers else ():
        best = max(peers, key=lambda name: statistics.median(measured[batch][name]))
        ratio = statistics.median(ratios(measured[batch], PENSTOCK, best))
        targets.append(Target(f"at batch {batch:,}: at least {least:g} times {best}", ratio, ratio >= least))
    return Finding(
        name="end_to_end",
        title=title,
        header=["batch", *ground.names],
        rows=[[f"{batch:,}", *(shown_spread(spread(one[name])) for name in one)] for batch, one in measured.items()],
        data={str(batch): {name: spread(one[name]) for name in one} for batch, one in measured.items()},
        draw=lambda axes: _draw(axes, title, {str(batch): one for batch, one in measured.items()}),
        targets=targets,
        notes=[
            "The peers know no batches: there the batch is a number of calls, and the rate is that of single ones.",
            "A message that two consumers of a peer have taken counts once.",
        ],
    )


def _turns(ground: Ground, urls: Mapping[str, str], batch: int) -> Measured:
    measured: Measured = {name: [] for name in urls}
    for _ in range(ground.rounds):
        for name, url in urls.items():
            who = name if name in ground.names else PENSTOCK
            measured[name].append(_rate(who, url, batch, ground.seconds))
    return measured


def _rate(name: str, url: str, batch: int, seconds: float, program: Sequence[str] = PROGRAM) -> float:
    """Messages per second. A message that two consumers have taken counts once."""
    before = waiting(name, url)
    with at_work(name, program, url, batch) as crew:
        crew.wait_for(taken=20)
        rate = crew.rates(seconds)[0]
    finished = before + crew.tally.sent - waiting(name, url)
    return rate * min(1.0, finished / crew.tally.taken)


def many_callers(ground: Ground) -> Finding:
    """Everybody with as many callers as suit him best."""
    urls = {name: ground.fresh(name) for name in ground.names}
    measured: dict[int, Measured] = {count: {name: [] for name in urls} for count in CALLERS}
    for _ in range(ground.rounds):
        for count in CALLERS:
            for name, url in urls.items():
                measured[count][name].append(_rate(name, url, count, ground.seconds, CALLERS_PROGRAM))
    best = {name: max((measured[count][name] for count in CALLERS), key=statistics.median) for name in urls}
    peers = [name for name in ground.names if name != PENSTOCK]
    targets = []
    if peers:
        first = max(peers, key=lambda name: statistics.median(best[name]))
        ratio = statistics.median(ratios(best, PENSTOCK, first))
        least = LEAST_RATIOS[1]
        targets.append(Target(f"single messages: at least {least:g} times {first}", ratio, ratio >= least))
    title = "Single messages from many callers: messages finished per second, 2 producing and 2 consuming processes"
    return Finding(
        name="many_callers",
        title=title,
        header=["callers in each process", *ground.names],
        rows=[[f"{count}", *(shown_spread(spread(one[name])) for name in one)] for count, one in measured.items()],
        data={str(count): {name: spread(one[name]) for name in one} for count, one in measured.items()},
        draw=lambda axes: _draw(axes, title, {str(count): one for count, one in measured.items()}),
        targets=targets,
        notes=[
            "A call sends, receives or acks one message. The callers of Penstock are tasks of `connect_async`, those "
            "of the peers threads with a connection each.",
            "Each counts with the number of callers that suits it best. A message that two consumers have taken counts "
            "once.",
        ],
    )


def backlog(ground: Ground) -> Finding:
    urls = {"empty": ground.fresh(PENSTOCK, "_empty"), "full": ground.fresh(PENSTOCK, "_full")}
    with closing(PenstockSession(urls["full"])) as session:
        for _ in range(ground.backlog // 1000):
            session.send(1000)
    measured = {batch: _turns(ground, urls, batch) for batch in (1, 1000)}
    shares = {batch: statistics.median(ratios(one, "full", "empty")) for batch, one in measured.items()}
    title = f"With {ground.backlog:,} messages waiting: messages finished per second"
    return Finding(
        name="backlog",
        title=title,
        header=["batch", "empty", "full", "ratio"],
        rows=[
            [f"{batch:,}", *(shown_spread(spread(one[when])) for when in urls), f"{shares[batch]:.2f}"]
            for batch, one in measured.items()
        ],
        data={str(batch): one for batch, one in measured.items()},
        draw=lambda axes: _draw(axes, title, {str(batch): one for batch, one in measured.items()}),
        targets=[
            Target(f"batch {batch:,}: flat within {MOST_CHANGE:.0%}", share, share >= 1 - MOST_CHANGE)
            for batch, share in shares.items()
        ],
    )


def held(ground: Ground) -> Finding:
    """A caller sends to the same queue and keeps its transaction open."""
    measured: Measured = {"free": [], "held": []}
    url = ground.fresh(PENSTOCK, "_held")
    place = urlsplit(url)
    with at_work(PENSTOCK, PROGRAM, url, HELD_BATCH) as crew, penstock.connect(url) as store:
        crew.wait_for(taken=HELD_BATCH)
        for _ in range(ground.rounds):
            measured["free"] += crew.rates(ground.held_seconds)
            with closing(
                pymysql.connect(host=place.hostname, port=place.port or 0, user="root", database=place.path[1:])
            ) as connection:
                store.queue(QUEUE).send(b"open", transaction=connection)
                measured["held"] += crew.rates(ground.held_seconds)
                connection.rollback()
    share = statistics.median(ratios(measured, "held", "free"))
    title = f"A caller's transaction held open for {ground.held_seconds:g} s after a send: messages per second"
    return Finding(
        name="held",
        title=f"{title}, batch {HELD_BATCH}",
        header=["free", "held", "ratio"],
        rows=[[*(shown_spread(spread(one)) for one in measured.values()), f"{share:.2f}"]],
        data=dict(measured),
        draw=lambda axes: _draw(axes, title, {str(HELD_BATCH): measured}),
        targets=[Target(f"costs at most {MOST_LOSS:.0%}", share, share >= 1 - MOST_LOSS)],
    )


def bulk(ground: Ground) -> Finding:
    """Calls of 10,000 messages that are more than plain."""
    count = 10_000
    url = ground.fresh(PENSTOCK, "_bulk")
    took: dict[str, float] = {}
    with penstock.connect(url) as store:
        queue = store.queue("bulk", lease_seconds=3600)
        took["plain sends"] = _seconds(lambda: queue.send_many([b"x"] * count))
        chosen = [penstock.Outgoing(payload=b"x", id=f"{n:08x}-0000-4000-8000-000000000000") for n in range(count)]
        took["sends with ids"] = _seconds(lambda: queue.send_many(chosen))
        late = [penstock.Outgoing(payload=b"x", delay_seconds=3600) for _ in range(count)]
        took["delayed sends"] = _seconds(lambda: queue.send_many(late))
        deliveries = queue.receive(limit=count)
        took["naks"] = _seconds(lambda: queue.settle([penstock.Nak(one) for one in deliveries]))
        took["trim"] = _seconds(lambda: queue.trim(keep=0))
    title = f"Seconds for {count:,} messages in one call"
    return Finding(
        name="bulk",
        title=title,
        header=list(took),
        rows=[[f"{one:.2f}" for one in took.values()]],
        data=dict(took),
        draw=lambda axes: _draw(axes, title, {"": {name: [one] for name, one in took.items()}}),
    )


def _seconds(call: Any) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _draw(axes: Any, title: str, measured: dict[str, Measured]) -> None:
    for place, name in enumerate(dict.fromkeys(name for one in measured.values() for name in one)):
        heights = [statistics.median(one[name]) for one in measured.values()]
        axes.bar([number + place / 8 for number in range(len(heights))], heights, width=1 / 8, label=name)
    axes.set(title=title, xticks=range(len(measured)), xticklabels=list(measured), yscale="log")
    axes.legend()


SCENARIOS = {"end_to_end": end_to_end, "many_callers": many_callers, "backlog": backlog, "held": held, "bulk": bulk}
