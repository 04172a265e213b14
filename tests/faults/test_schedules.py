"""A schedule sends one message for each tick, however many processes sweep and however many of them are killed."""

from __future__ import annotations

import random
import time

import penstock
from tests.faults.crew import Crew, await_ready
from tests.faults.ticker import fast_time

SECONDS = 4


def test_three_sweepers_under_kills_send_every_tick_once(crew: Crew) -> None:
    since = time.time_ns() // 1000
    with penstock.connect(crew.url, clock=lambda: fast_time(since)) as store:
        first = store.schedule("fast", "* * * * *", "ticks", b"tick", catch_up="all").next_at
    words = ["-m", "tests.faults.ticker", crew.url, str(since)]
    dice = random.Random(crew.seed)
    tickers = [crew.run(words) for _ in range(3)]
    for ticker in tickers:
        await_ready(ticker)
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends:
        time.sleep(dice.uniform(0.05, 0.3))
        place = dice.randrange(len(tickers))
        crew.kill(tickers[place])
        tickers[place] = crew.run(words)
        await_ready(tickers[place])
    crew.finish_all()

    with penstock.connect(crew.url, clock=lambda: fast_time(since)) as store:
        last = store.schedules()[0].last_at
        assert first is not None
        assert last is not None
        passed = round((last - first).total_seconds() / 60) + 1
        assert passed >= SECONDS, "unknown: hardly any tick passed"
        sent = store.queue("ticks").receive(limit=1000)
    assert len(sent) == passed
    assert len({delivery.headers["penstock-tick"] for delivery in sent}) == passed
