"""PgQueuer: enqueue, dequeue and log_jobs of its queries, on asyncpg, the driver it recommends."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from typing import Any

import asyncpg
from pgqueuer.db import AsyncpgDriver
from pgqueuer.ports.repository import EntrypointExecutionParameter
from pgqueuer.queries import Queries

from bench.plan import payload

ENTRYPOINTS: dict[Any, EntrypointExecutionParameter] = {"bench": EntrypointExecutionParameter(concurrency_limit=0)}


def prepare(url: str) -> None:
    async def install() -> None:
        connection = await asyncpg.connect(url)
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    asyncio.run(install())


class PgqueuerSession:
    def __init__(self, url: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.connection = self.loop.run_until_complete(asyncpg.connect(url))
        self.queries = Queries(AsyncpgDriver(self.connection))
        self.manager: Any = uuid.uuid4()

    def send(self, count: int) -> None:
        payloads: list[bytes | None] = [payload(number) for number in range(count)]
        self.loop.run_until_complete(self.queries.enqueue(["bench"] * count, payloads, [0] * count))

    def take(self, count: int) -> int:
        return self.loop.run_until_complete(self._take(count))

    async def _take(self, count: int) -> int:
        jobs = await self.queries.dequeue(count, ENTRYPOINTS, self.manager, None, timedelta(hours=1))
        if jobs:
            await self.queries.log_jobs([(job, "successful", None) for job in jobs])
        return len(jobs)

    def close(self) -> None:
        self.loop.run_until_complete(self.connection.close())
        self.loop.close()
