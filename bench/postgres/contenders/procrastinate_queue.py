"""Procrastinate: batch_defer, and the fetch and finish of its worker, which takes one job at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import procrastinate
from procrastinate.jobs import Status

from bench.plan import payload


def _app(url: str) -> procrastinate.App:
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=1, max_size=1))

    @app.task(name="bench", queue="bench")  # type: ignore[untyped-decorator]
    def work(p: str) -> None:
        """Never run: only sending and fetching is measured."""

    return app


def prepare(url: str) -> None:
    async def apply() -> None:
        async with _app(url).open_async() as app:
            await app.schema_manager.apply_schema_async()

    asyncio.run(apply())


class ProcrastinateSession:
    def __init__(self, url: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.app = _app(url)
        self.loop.run_until_complete(self.app.open_async())
        self.worker: Any = self.loop.run_until_complete(self.app.job_manager.register_worker())

    def send(self, count: int) -> None:
        arguments: list[Any] = [{"p": payload(number).decode()} for number in range(count)]
        self.loop.run_until_complete(self.app.tasks["bench"].batch_defer_async(*arguments))

    def take(self, count: int) -> int:
        return self.loop.run_until_complete(self._take(count))

    async def _take(self, count: int) -> int:
        for taken in range(count):
            job = await self.app.job_manager.fetch_job(["bench"], self.worker)
            if job is None:
                return taken
            await self.app.job_manager.finish_job(job, Status.SUCCEEDED, delete_job=False)
        return count

    def close(self) -> None:
        self.loop.run_until_complete(self.app.close_async())
        self.loop.close()
