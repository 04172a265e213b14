"""`... CONTENDER send|take URL TALLY SLOT CALLERS MOST`: one process with many callers, each of which sends or finishes
one message per call, as handlers of a web server and of a worker do.

Everybody is used in the way that is fastest for him: the callers of Penstock are tasks, whose calls commit together;
those of the peers are threads with a connection each."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import penstock
from bench.mariadb.contenders import CONTENDERS, PENSTOCK, was_undone
from bench.penstock_session import QUEUE
from bench.plan import payload
from bench.role import LOOK_AGAIN_SECONDS, REST_SECONDS, Session
from bench.tally import Tally
from penstock.client.aio.queue import AsyncQueue


class Callers:
    """What all callers of a process share."""

    def __init__(self, tally: Tally, slot: int, most_waiting: int) -> None:
        self._tally = tally
        self._slot = slot
        self._most_waiting = most_waiting
        self._lock = threading.Lock()

    @property
    def is_over(self) -> bool:
        return self._tally.is_over

    @property
    def must_rest(self) -> bool:
        return self._tally.sent - self._tally.taken > self._most_waiting

    def add(self, count: int) -> None:
        with self._lock:
            self._tally.add(self._slot, count)


def main() -> None:
    name, role, url, path, slot, count, most_waiting = sys.argv[1:]
    callers = Callers(Tally(Path(path)), int(slot), int(most_waiting))
    if name == PENSTOCK:
        asyncio.run(_tasks(url, role, callers, int(count)))
        return
    work = _send if role == "send" else _take
    threads = [threading.Thread(target=_thread, args=(name, url, work, callers)) for _ in range(int(count))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def _tasks(url: str, role: str, callers: Callers, count: int) -> None:
    work = _task_send if role == "send" else _task_take
    async with await penstock.connect_async(url) as store, asyncio.TaskGroup() as group:
        queue = await store.queue(QUEUE)
        for _ in range(count):
            group.create_task(work(queue, callers))


async def _task_send(queue: AsyncQueue, callers: Callers) -> None:
    while not callers.is_over:
        if callers.must_rest:
            await asyncio.sleep(REST_SECONDS)
            continue
        await queue.send(payload(0))
        callers.add(1)


async def _task_take(queue: AsyncQueue, callers: Callers) -> None:
    while not callers.is_over:
        found = await queue.receive()
        if not found:
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            continue
        await found[0].ack()
        callers.add(1)


def _thread(name: str, url: str, work: object, callers: Callers) -> None:
    assert callable(work)
    with closing(CONTENDERS[name](url)) as session:
        while not callers.is_over:
            try:
                work(session, callers)
            except Exception as error:
                if not was_undone(error):
                    raise


def _send(session: Session, callers: Callers) -> None:
    if callers.must_rest:
        time.sleep(REST_SECONDS)
        return
    session.send(1)
    callers.add(1)


def _take(session: Session, callers: Callers) -> None:
    if session.take(1):
        callers.add(1)
    else:
        time.sleep(LOOK_AGAIN_SECONDS)


if __name__ == "__main__":
    main()
