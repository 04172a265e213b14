"""Workers, each in a process of its own with the Redis client that it needs: `python jobs.py LIBRARY PORT BATCH COUNT`
sends jobs and runs them; one JSON line out. A job does nothing.

Nobody's set-up counts: connections and the first call of a kind come before the first job is sent, and the clock of the
worker starts with its first handler. It ends when the server has the last acknowledgement.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

PAYLOAD = "x" * 200
POLL_SECONDS = 0.001
# Handlers of a peer at a time, and messages it fetches ahead; 8 and 100 handlers were no faster. (BullMQ has 100.)
HANDLERS = 32
AHEAD = 100


class Clock:
    def __init__(self, count: int) -> None:
        self.settled = threading.Event()
        self._left = count
        self._lock = threading.Lock()
        self._began = self._sent = self._first = 0.0

    def begin(self) -> None:
        self._began = time.perf_counter()

    def sent(self) -> None:
        self._sent = time.perf_counter()

    def run(self, payload: Any = None) -> None:
        """The job."""
        if not self._first:
            self._first = time.perf_counter()

    def settle(self) -> None:
        """One job is acknowledged."""
        with self._lock:
            self._left -= 1
            if not self._left:
                self.settled.set()

    def lives(self) -> tuple[float, float]:
        """The seconds of sending, and of running; called when all jobs are settled."""
        return self._sent - self._began, time.perf_counter() - self._first


def penstock(port: int, batch: int, count: int) -> tuple[float, float]:
    """A plain function in the threads of a worker, with its defaults."""
    import penstock as library

    clock = Clock(count)
    with library.connect(f"redis://127.0.0.1:{port}/0") as store:
        queue = store.queue(f"worker-{os.getpid()}")
        queue.send(PAYLOAD)
        queue.receive()[0].ack()
        clock.begin()
        for _ in range(0, count, batch):
            if batch == 1:
                queue.send(PAYLOAD)
            else:
                queue.send_many([PAYLOAD] * batch)
        clock.sent()
        with library.Worker(store, {queue.name: clock.run}) as worker:
            while worker.status()[0].done.get("ack", 0) < count:
                time.sleep(POLL_SECONDS)
            seconds = clock.lives()
        queue.delete()
    return seconds


def rq(port: int, batch: int, count: int) -> tuple[float, float]:
    """Bulks in one pipeline, and the worker that does not fork."""
    import redis
    from rq import Queue, SimpleWorker

    jobs_of_rq["clock"] = Clock(1)
    connection = redis.Redis(port=port)
    queue = Queue("bench", connection=connection)
    worker = SimpleWorker([queue], connection=connection)
    queue.enqueue(handle_of_rq, PAYLOAD)
    worker.work(burst=True, logging_level="ERROR")
    clock = jobs_of_rq["clock"] = Clock(count)
    clock.begin()
    for _ in range(0, count, batch):
        if batch == 1:
            queue.enqueue(handle_of_rq, PAYLOAD)
        else:
            queue.enqueue_many([Queue.prepare_data(handle_of_rq, (PAYLOAD,)) for _ in range(batch)])
    clock.sent()
    worker.work(burst=True, logging_level="ERROR")
    return clock.lives()


jobs_of_rq: dict[str, Clock] = {}


def handle_of_rq(payload: str) -> None:
    """RQ imports its handlers by their name."""
    jobs_of_rq["clock"].run()


def dramatiq(port: int, batch: int, count: int) -> tuple[float, float]:
    """It sends one message at a time; bulks go through threads. Acknowledgements of threads share a sync."""
    import dramatiq as library
    from dramatiq.brokers.redis import RedisBroker

    clock = Clock(count)

    class Acknowledged(library.Middleware):  # type: ignore[misc]  # in a folder of its own
        def after_ack(self, broker: library.Broker, message: Any) -> None:
            clock.settle()

    broker = RedisBroker(host="127.0.0.1", port=port)
    broker.add_middleware(Acknowledged())
    library.set_broker(broker)
    actor = library.actor(clock.run, actor_name="run")
    broker.client.ping()
    broker.do_qsize(actor.queue_name)
    with ThreadPoolExecutor(HANDLERS) as pool:
        clock.begin()
        for _ in range(0, count, batch):
            if batch == 1:
                actor.send(PAYLOAD)
            else:
                list(pool.map(actor.send, [PAYLOAD] * batch))
        clock.sent()
    os.environ["dramatiq_queue_prefetch"] = str(AHEAD)  # noqa: SIM112  # the name is Dramatiq's
    worker = library.Worker(broker, worker_threads=HANDLERS)
    worker.start()
    clock.settled.wait()
    seconds = clock.lives()
    worker.stop()
    return seconds


async def taskiq(port: int, batch: int, count: int) -> tuple[float, float]:
    """Streams, whose messages are acknowledged."""
    from taskiq.api import run_receiver_task  # type: ignore[import-not-found]  # in a folder of its own
    from taskiq_redis import RedisStreamBroker  # type: ignore[import-not-found]  # in a folder of its own

    clock = Clock(count)
    finished = asyncio.Event()

    class Broker(RedisStreamBroker):  # type: ignore[misc]  # in a folder of its own
        def _ack_generator(self, id: str, queue_name: str) -> Callable[[], Any]:
            acknowledge = super()._ack_generator(id, queue_name)

            async def settle() -> None:
                await acknowledge()
                clock.settle()
                if clock.settled.is_set():
                    finished.set()

            return settle

    broker = Broker(f"redis://127.0.0.1:{port}", queue_name=f"taskiq-{os.getpid()}", consumer_group_name="bench")

    async def run(payload: str) -> None:
        clock.run()

    task = broker.register_task(run, task_name="run")
    await broker.startup()
    clock.begin()
    for _ in range(0, count, batch):
        if batch == 1:
            await task.kiq(PAYLOAD)
        else:
            await asyncio.gather(*(task.kiq(PAYLOAD) for _ in range(batch)))
    clock.sent()
    receiver = asyncio.create_task(run_receiver_task(broker, max_async_tasks=HANDLERS, max_prefetch=AHEAD))
    await finished.wait()
    seconds = clock.lives()
    receiver.cancel()
    await asyncio.gather(receiver, return_exceptions=True)
    await broker.shutdown()
    return seconds


async def arq(port: int, batch: int, count: int) -> tuple[float, float]:
    from arq import create_pool, func
    from arq.connections import RedisSettings
    from arq.worker import Worker

    clock = Clock(count)

    async def run(context: dict[str, Any], payload: str) -> None:
        clock.run()

    settings = RedisSettings(port=port)
    pool = await create_pool(settings)
    clock.begin()
    for _ in range(0, count, batch):
        if batch == 1:
            await pool.enqueue_job("run", PAYLOAD)
        else:
            await asyncio.gather(*(pool.enqueue_job("run", PAYLOAD) for _ in range(batch)))
    clock.sent()
    worker = Worker(
        [func(run, name="run", keep_result=0)], redis_settings=settings, burst=True, max_jobs=HANDLERS,
        poll_delay=0.001, handle_signals=False, queue_read_limit=AHEAD,
    )  # fmt: skip
    await worker.async_run()
    seconds = clock.lives()
    await worker.close()
    await pool.aclose()
    return seconds


LIBRARIES: dict[str, Callable[[int, int, int], Any]] = {
    "penstock": penstock, "rq": rq, "dramatiq": dramatiq, "taskiq": taskiq, "arq": arq,
}  # fmt: skip


def main() -> None:
    name, port, batch, count = sys.argv[1:]
    found = LIBRARIES[name](int(port), int(batch), int(count))
    send_seconds, work_seconds = asyncio.run(found) if asyncio.iscoroutine(found) else found
    print(json.dumps({"send_seconds": send_seconds, "work_seconds": work_seconds}))


if __name__ == "__main__":
    main()
