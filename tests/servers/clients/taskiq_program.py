"""Tasks as a user of taskiq with taskiq-redis runs them: `taskiq_program.py PORT STREAM`.

The first worker takes a task and dies. The second one runs a new task, then takes over what the first one held, which
taskiq-redis does under a lock. It prints what it saw as JSON, and knows nothing of Penstock.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from redis.asyncio import Redis
from taskiq.api import run_receiver_task  # type: ignore[import-not-found]  # lives in a folder of its own
from taskiq_redis import RedisStreamBroker  # type: ignore[import-not-found]  # as taskiq

PATIENCE_SECONDS = 90


async def main() -> None:
    port, stream = int(sys.argv[1]), sys.argv[2]
    done: list[int] = []
    finished = asyncio.Event()

    async def job(number: int) -> int:
        done.append(number)
        if len(done) == 3:
            finished.set()
        return number

    def broker(consumer: str) -> Any:
        made = RedisStreamBroker(
            f"redis://127.0.0.1:{port}",
            queue_name=stream,
            consumer_group_name="tasks",
            consumer_name=consumer,
            consumer_id="0",
            xread_count=1,
            idle_timeout=0,
            maxlen=1000,
        )
        made.register_task(job, task_name="job")
        return made

    first, second = broker("first"), broker("second")
    await first.startup()
    await first.find_task("job").kiq(1)
    taken = first.listen()
    await anext(taken)
    await taken.aclose()
    await first.find_task("job").kiq(2)
    await first.find_task("job").kiq(3)
    worker = asyncio.create_task(run_receiver_task(second, run_startup=True))
    await asyncio.wait_for(finished.wait(), PATIENCE_SECONDS)
    async with Redis(port=port) as client:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await client.xpending(stream, "tasks"))["pending"]:
                await asyncio.sleep(0.01)  # a task is acknowledged after it has run
        seen = {"done": sorted(set(done)), "locks": await client.exists(f"autoclaim:tasks:{stream}")}
    print(json.dumps(seen), flush=True)
    # The worker ends with the process: taskiq now and then swallows a cancellation and goes on reading.
    assert not worker.done()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
