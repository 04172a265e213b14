"""Latency measurement of each contender: one end sends times, the other receives them by its own way of waiting."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import asyncpg
import procrastinate
import psycopg
from pgqueuer import AsyncpgDriver, PgQueuer, Queries
from pgqueuer.models import Job

import penstock
from bench.postgres.contenders import PENSTOCK, PGMQ


class Line(Protocol):
    """One end sends a time, the other receives it."""

    def send(self, sent_at: float) -> None: ...
    def hear(self) -> list[float]:
        """The times that came, waiting for them up to a second."""

    def finish(self) -> None:
        """Settle the received messages."""

    def close(self) -> None: ...


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


class WorkerLine:
    """For contenders that can only wait in their worker: it runs in a thread, and its handler reports."""

    def __init__(self, url: str) -> None:
        self.times: queue.SimpleQueue[float] = queue.SimpleQueue()
        self.sending = asyncio.new_event_loop()
        self.hearing = asyncio.new_event_loop()
        self.sending.run_until_complete(self.open(url))
        self.working = self.hearing.create_task(self.work(url))
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    async def open(self, url: str) -> None:
        raise NotImplementedError

    async def put(self, text: str) -> None:
        raise NotImplementedError

    async def shut(self) -> None:
        raise NotImplementedError

    async def work(self, url: str) -> None:
        raise NotImplementedError

    def send(self, sent_at: float) -> None:
        self.sending.run_until_complete(self.put(repr(sent_at)))

    def hear(self) -> list[float]:
        try:
            return [self.times.get(timeout=1)]
        except queue.Empty:
            return []

    def finish(self) -> None:
        """Its worker has settled it."""

    def close(self) -> None:
        self.hearing.call_soon_threadsafe(self.working.cancel)
        self.thread.join()
        self.sending.run_until_complete(self.shut())
        self.sending.close()
        self.hearing.close()

    def _work(self) -> None:
        with suppress(asyncio.CancelledError):  # raised at the end
            self.hearing.run_until_complete(self.working)


class PgqueuerLine(WorkerLine):
    async def open(self, url: str) -> None:
        self.connection = await asyncpg.connect(url)
        self.queries = Queries(AsyncpgDriver(self.connection))

    async def put(self, text: str) -> None:
        await self.queries.enqueue(["bench"], [text.encode()], [0])

    async def shut(self) -> None:
        await self.connection.close()

    async def work(self, url: str) -> None:
        connection = await asyncpg.connect(url)
        app = PgQueuer(AsyncpgDriver(connection))

        @app.entrypoint("bench")  # type: ignore[untyped-decorator]
        async def note(job: Job) -> None:
            self.times.put(float(job.payload or b"0"))

        await app.run(batch_size=100)


class ProcrastinateLine(WorkerLine):
    def _app(self, url: str) -> procrastinate.App:
        app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=1, max_size=4))

        @app.task(name="bench", queue="bench")  # type: ignore[untyped-decorator]
        async def note(p: str) -> None:
            self.times.put(float(p))

        return app

    async def open(self, url: str) -> None:
        self.app = self._app(url)
        await self.app.open_async()

    async def put(self, text: str) -> None:
        await self.app.tasks["bench"].defer_async(p=text)

    async def shut(self) -> None:
        await self.app.close_async()

    async def work(self, url: str) -> None:
        async with self._app(url).open_async() as app:
            await app.run_worker_async(install_signal_handlers=False, concurrency=8)


LINES: dict[str, Callable[[str], Line]] = {
    PENSTOCK: PenstockLine,
    PGMQ: PgmqLine,
    "pgqueuer": PgqueuerLine,
    "procrastinate": ProcrastinateLine,
}
