"""Clients that wait. One desk for each group of a queue, however many wait there; first come, first served.

A desk sleeps in the store's watcher, which looks once for all. When there is something it receives for those in front,
for more of them at a time as long as there is enough. A client that has gone away is struck off the list before
anything is taken for it, and what was on its way to it meanwhile is given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from penstock.domain.errors import PenstockError
from penstock.engines.contract import Receipt
from penstock.servers.resp.door import Door
from penstock.servers.resp.encoder import Reply
from penstock.servers.resp.words import CommandError, failure
from penstock.servers.resp.work import Waiting, Work

logger = logging.getLogger("penstock.resp")
# A wait that nobody ends is begun anew after this long.
LONG_SECONDS = 3600.0
# Something seemed to be there and was not: do not ask again at once.
PAUSE_SECONDS = 0.05
# Clients served in one transaction at most; others of the store want their turn.
MOST_AT_ONCE = 64


# A queue, a group of it, and whether the group must be there.
Place = tuple[str, str | None, bool]


class Client(Protocol):
    def is_there(self) -> bool:
        """Whether somebody still listens at the other end."""

    def may_receive(self, queue: str) -> bool:
        """Whether its user still has the right."""

    def answer(self, reply: Reply | Work) -> None: ...


class Waiter:
    """One client and what it waits for. It may stand at several desks; `busy` while one of them receives for it."""

    __slots__ = ("busy", "client", "desks", "is_done", "is_late", "timer", "waiting")

    def __init__(self, client: Client, waiting: Waiting) -> None:
        self.client = client
        self.waiting = waiting
        self.desks: list[Desk] = []
        self.busy = False
        self.is_done = False
        self.is_late = False
        self.timer: asyncio.TimerHandle | None = None

    def answer(self, reply: Reply | Work) -> None:
        if not self.is_done:
            self.leave()
            self.client.answer(reply)

    def leave(self) -> None:
        """No longer waits; also called when the client has gone away."""
        self.is_done = True
        if self.timer is not None:
            self.timer.cancel()
        for desk in self.desks:
            desk.strike(self)

    def run_late(self) -> None:
        self.is_late = True
        if not self.busy:
            self.answer(self.waiting.empty)


class Desk:
    def __init__(self, door: Door, place: Place, closed: Callable[[Desk], None]) -> None:
        self.door = door
        self.place = place
        self.queue, self.group, self.needs_group = place
        self._closed = closed
        self.waiters: dict[Waiter, None] = {}
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def stand(self, waiter: Waiter) -> None:
        self.waiters[waiter] = None
        waiter.desks.append(self)

    def strike(self, waiter: Waiter) -> None:
        self.waiters.pop(waiter, None)
        if not self.waiters:
            self._task.cancel()
            self._closed(self)

    @property
    def told(self) -> int:
        """How many wait to be told, rather than to be given something."""
        return sum(waiter.waiting.take is None for waiter in self.waiters)

    async def _serve(self) -> None:
        queue = self.queue
        while self.waiters:
            try:
                await self.door.store._wait(self.place, self._ready_in, LONG_SECONDS)
                served = await self._hand_out()
            except PenstockError as error:
                logger.warning("waiting clients of queue %r: %s", queue, error)
                served = False
            if not served:
                await asyncio.sleep(PAUSE_SECONDS)

    def _ready_in(self) -> float | None:
        """A group that is gone has something to tell, too."""
        engine = self.door.engine
        if self.needs_group and self.group not in engine.groups(self.queue):
            return 0
        return engine.ready_in(self.queue, self.group)

    async def _hand_out(self) -> bool:
        """Serve until nothing is left; whether anybody was."""
        served = self._tell()
        at_once = 1
        while front := self._front(at_once):
            taken = await asyncio.gather(*(self._take_for(waiter) for waiter in front))
            served = served or any(taken)
            if not all(taken):
                break
            at_once = min(2 * at_once, MOST_AT_ONCE)
        return served

    def _tell(self) -> bool:
        listeners = [waiter for waiter in self.waiters if waiter.waiting.take is None]
        for waiter in listeners:
            waiter.answer(waiter.waiting.deal(self.queue, None))
        return bool(listeners)

    def _front(self, count: int) -> list[Waiter]:
        """The first who are still there and may still receive."""
        front: list[Waiter] = []
        for waiter in list(self.waiters):
            if len(front) == count:
                break
            if waiter.busy:
                continue
            if not waiter.client.is_there():
                waiter.leave()
            elif not waiter.client.may_receive(self.queue):
                waiter.answer(failure(PenstockError(f"no right to receive from queue {self.queue!r} any more")))
            else:
                front.append(waiter)
        return front

    async def _take_for(self, waiter: Waiter) -> bool:
        assert waiter.waiting.take is not None
        waiter.busy = True
        try:
            # Shielded: when the last one leaves, this task is cancelled, but the answer still has to be dealt with.
            taking = asyncio.ensure_future(self.door.store._writes.answer(waiter.waiting.take(self.queue)))
            taking.add_done_callback(lambda done: self._deal(waiter, done))
            receipts: list[Receipt] = await asyncio.shield(taking)
        except CommandError:
            return True  # refused, which is an answer
        except PenstockError:
            return False
        return any(receipt.rows for receipt in receipts)

    def _deal(self, waiter: Waiter, done: asyncio.Future[list[Receipt]]) -> None:
        waiter.busy = False
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            waiter.answer(failure(error))
            return
        receipts = done.result()
        has_any = any(receipt.rows for receipt in receipts)
        if has_any and (waiter.is_done or not waiter.client.is_there()):
            self.door.let_go(receipts)
            waiter.leave()
        elif has_any:
            waiter.answer(waiter.waiting.deal(self.queue, receipts))
        elif waiter.is_late:
            waiter.answer(waiter.waiting.empty)


class Desks:
    """All desks of a server."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._desks: dict[Place, Desk] = {}

    def wait(self, client: Client, waiting: Waiting) -> Waiter:
        waiter = Waiter(client, waiting)
        for queue in dict.fromkeys(waiting.queues):
            self._desk((queue, waiting.group, waiting.needs_group)).stand(waiter)
        if waiting.seconds is not None:
            loop = asyncio.get_running_loop()
            waiter.timer = loop.call_later(waiting.seconds, waiter.run_late)
        return waiter

    def told(self, queue: str, group: str) -> int:
        """How many clients wait to be told of messages of the group."""
        desk = self._desks.get((queue, group, False))
        return 0 if desk is None else desk.told

    def _desk(self, place: Place) -> Desk:
        desk = self._desks.get(place)
        if desk is None:
            desk = self._desks[place] = Desk(self._door, place, self._close)
        return desk

    def _close(self, desk: Desk) -> None:
        if self._desks.get(desk.place) is desk:
            del self._desks[desk.place]

    def count(self) -> int:
        """How many clients wait for something."""
        return len({waiter for desk in self._desks.values() for waiter in desk.waiters})
