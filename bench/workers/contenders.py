"""One turn of one contender, in a process of its own: `python -m bench.workers.contenders NAME PLACE COUNT`.

Fills a queue, then runs the contender's worker until every message was handled, and prints how long that took from the
first handler to the last settlement, and the processor time of this process. Each is used the fastest way its
documentation shows, in one process, with as many handlers at a time as it likes.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import penstock
from bench.plan import payload

CONCURRENCY = 8
CHUNK = 1_000


class Timer:
    """From the start of the worker to the end of the last message."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.processor = time.process_time()

    def report(self, count: int) -> dict[str, float]:
        seconds = time.perf_counter() - self.began
        return {"per_second": count / seconds, "processor": (time.process_time() - self.processor) / count}


# -- Penstock ----------------------------------------------------------------------------------------------------------


def penstock_threads(place: str, count: int) -> dict[str, float]:
    return _penstock(place, count, lambda delivery: None)


def penstock_async(place: str, count: int) -> dict[str, float]:
    async def handle(delivery: penstock.AsyncDelivery) -> None:
        """Nothing."""

    return _penstock(place, count, handle)


def _penstock(url: str, count: int, handle: Callable[..., object]) -> dict[str, float]:
    with penstock.connect(url) as store:
        store.migrate()
        queue = store.queue("bench")
        for start in range(0, count, CHUNK):
            queue.send_many([payload(number) for number in range(start, min(count, start + CHUNK))])
        worker = penstock.Worker(store, {"bench": handle}, concurrency=CONCURRENCY)
        timer = Timer()
        worker.run(once=True)
        report = timer.report(count)
        assert queue.stats("default").done == count
    return report


# -- huey --------------------------------------------------------------------------------------------------------------


def huey_threads(place: str, count: int) -> dict[str, float]:
    from huey import SqliteHuey
    from huey.consumer import Consumer

    huey = SqliteHuey("bench", filename=place, fsync=True, journal_mode="wal", results=False)
    assert huey.storage.conn.execute("pragma synchronous").fetchone()[0] == 2
    done = threading.Event()
    handled = 0
    lock = threading.Lock()

    @huey.task()  # type: ignore[untyped-decorator]  # huey has no types
    def noop(body: bytes) -> None:
        nonlocal handled
        with lock:
            handled += 1
            if handled == count:
                done.set()

    for number in range(count):
        noop(payload(number))
    consumer = Consumer(huey, workers=CONCURRENCY, periodic=False, initial_delay=0.001, check_worker_health=False)
    timer = Timer()
    consumer.start()
    done.wait()
    report = timer.report(count)
    consumer.stop()
    return report


# -- PgQueuer ----------------------------------------------------------------------------------------------------------


def pgqueuer(place: str, count: int) -> dict[str, float]:
    return asyncio.run(_pgqueuer(place, count))


async def _pgqueuer(place: str, count: int) -> dict[str, float]:
    import asyncpg
    from pgqueuer import AsyncpgPoolDriver, PgQueuer, Queries
    from pgqueuer.models import Job
    from pgqueuer.types import QueueExecutionMode

    async with asyncpg.create_pool(place, min_size=2, max_size=10) as pool:
        driver = AsyncpgPoolDriver(pool)
        queries = Queries(driver)
        await queries.install()
        for start in range(0, count, CHUNK):
            bodies = [payload(number) for number in range(start, min(count, start + CHUNK))]
            await queries.enqueue(["noop"] * len(bodies), bodies, [0] * len(bodies))
        app = PgQueuer(driver)
        handled = 0

        @app.entrypoint("noop")  # type: ignore[untyped-decorator]  # only in the bench lock
        async def noop(job: Job) -> None:
            nonlocal handled
            handled += 1

        timer = Timer()
        # Its own benchmark drains the queue like this, with batches of this size.
        await app.run(batch_size=250, mode=QueueExecutionMode.drain)
        report = timer.report(count)
        assert handled == count, handled
    return report


# -- Procrastinate -----------------------------------------------------------------------------------------------------


def procrastinate(place: str, count: int) -> dict[str, float]:
    return asyncio.run(_procrastinate(place, count))


async def _procrastinate(place: str, count: int) -> dict[str, float]:
    from procrastinate import App, PsycopgConnector

    app = App(connector=PsycopgConnector(conninfo=place, min_size=2, max_size=CONCURRENCY + 2))
    handled = 0

    @app.task(name="noop")  # type: ignore[untyped-decorator]  # only in the bench lock
    async def noop(body: str) -> None:
        nonlocal handled
        handled += 1

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for start in range(0, count, CHUNK):
            bodies = [{"body": payload(number).decode()} for number in range(start, min(count, start + CHUNK))]
            await noop.batch_defer_async(*bodies)
        timer = Timer()
        await app.run_worker_async(
            wait=False, concurrency=CONCURRENCY, install_signal_handlers=False, delete_jobs="always"
        )
        report = timer.report(count)
        assert handled == count, handled
    return report


SQLITE: dict[str, Callable[[str, int], dict[str, float]]] = {
    "penstock": penstock_threads,
    "penstock async": penstock_async,
    "huey": huey_threads,
}
POSTGRES: dict[str, Callable[[str, int], dict[str, float]]] = {
    "penstock": penstock_threads,
    "penstock async": penstock_async,
    "PgQueuer": pgqueuer,
    "Procrastinate": procrastinate,
}


def sqlite_place(name: str, folder: Path) -> str:
    path = folder / f"{name.replace(' ', '-')}.db"
    return str(path) if name == "huey" else f"sqlite:///{path}"


if __name__ == "__main__":
    engine, chosen, where, number = sys.argv[1:]
    print(json.dumps({"sqlite": SQLITE, "postgres": POSTGRES}[engine][chosen](where, int(number))))
