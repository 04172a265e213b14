"""Job libraries, each in a process of its own with the Redis client that it needs: `python jobs.py LIBRARY PORT BATCH
COUNT` sends jobs and runs them; one JSON line out. A job does nothing."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

PAYLOAD = "x" * 200


def handle(payload: str) -> None:
    """The job."""


def rq(port: int, batch: int, count: int) -> tuple[float, float]:
    """Bulks in one pipeline, and the worker that does not fork."""
    import redis
    from rq import Queue, SimpleWorker

    connection = redis.Redis(port=port)
    queue = Queue("bench", connection=connection)
    began = time.perf_counter()
    for _ in range(0, count, batch):
        if batch == 1:
            queue.enqueue(handle, PAYLOAD)
        else:
            queue.enqueue_many([Queue.prepare_data(handle, (PAYLOAD,)) for _ in range(batch)])
    sent = time.perf_counter()
    worker = SimpleWorker([queue], connection=connection)
    worker.work(burst=True, logging_level="ERROR")
    return sent - began, time.perf_counter() - sent


def dramatiq(port: int, batch: int, count: int) -> tuple[float, float]:
    import dramatiq as library
    from dramatiq.brokers.redis import RedisBroker

    broker = RedisBroker(host="127.0.0.1", port=port)
    library.set_broker(broker)
    done, finished = [0], threading.Event()
    lock = threading.Lock()

    def run(payload: str) -> None:
        with lock:
            done[0] += 1
            if done[0] == count:
                finished.set()

    actor = library.actor(run)
    began = time.perf_counter()
    for _ in range(count):
        actor.send(PAYLOAD)
    sent = time.perf_counter()
    worker = library.Worker(broker, worker_threads=8 if batch > 1 else 1)
    worker.start()
    finished.wait()
    broker.join(actor.queue_name)
    ended = time.perf_counter()
    worker.stop()
    return sent - began, ended - sent


async def taskiq(port: int, batch: int, count: int) -> tuple[float, float]:
    """Streams, whose messages are acknowledged; as many at a time as the batch."""
    from taskiq.api import run_receiver_task  # type: ignore[import-not-found]  # in a folder of its own
    from taskiq_redis import RedisStreamBroker  # type: ignore[import-not-found]  # in a folder of its own

    broker = RedisStreamBroker(f"redis://127.0.0.1:{port}", queue_name=f"taskiq-{batch}", consumer_group_name="bench")
    done, finished = [0], asyncio.Event()

    async def run(payload: str) -> None:
        done[0] += 1
        if done[0] == count:
            finished.set()

    task = broker.register_task(run, task_name="run")
    await broker.startup()
    began = time.perf_counter()
    for _ in range(0, count, batch):
        await asyncio.gather(*(task.kiq(PAYLOAD) for _ in range(batch)))
    sent = time.perf_counter()
    receiver = asyncio.create_task(run_receiver_task(broker, max_async_tasks=batch, max_prefetch=batch))
    await finished.wait()
    ended = time.perf_counter()
    receiver.cancel()
    await asyncio.gather(receiver, return_exceptions=True)
    await broker.shutdown()
    return sent - began, ended - sent


async def arq(port: int, batch: int, count: int) -> tuple[float, float]:
    from arq import create_pool, func
    from arq.connections import RedisSettings
    from arq.worker import Worker

    async def run(context: dict[str, Any], payload: str) -> None:
        pass

    settings = RedisSettings(port=port)
    pool = await create_pool(settings)
    began = time.perf_counter()
    for _ in range(0, count, batch):
        await asyncio.gather(*(pool.enqueue_job("run", PAYLOAD) for _ in range(batch)))
    sent = time.perf_counter()
    worker = Worker(
        [func(run, name="run", keep_result=0)], redis_settings=settings, burst=True, max_jobs=batch, poll_delay=0.001,
        handle_signals=False, queue_read_limit=max(batch, 5),
    )  # fmt: skip
    await worker.async_run()
    ended = time.perf_counter()
    await worker.close()
    await pool.aclose()
    return sent - began, ended - sent


LIBRARIES: dict[str, Callable[[int, int, int], Any]] = {"rq": rq, "dramatiq": dramatiq, "taskiq": taskiq, "arq": arq}


def main() -> None:
    name, port, batch, count = sys.argv[1:]
    found = LIBRARIES[name](int(port), int(batch), int(count))
    send_seconds, work_seconds = asyncio.run(found) if asyncio.iscoroutine(found) else found
    print(json.dumps({"send_seconds": send_seconds, "work_seconds": work_seconds}))


if __name__ == "__main__":
    main()
