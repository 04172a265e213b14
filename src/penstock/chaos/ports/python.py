"""The Python port, and the asynchronous one, whose event loop is shared by threads."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import penstock
from penstock.chaos.ports.port import Denied, Item, Taken, content_of, message_of

T = TypeVar("T")
# Refusals that change nothing, LeaseLost among them.
REFUSED = (penstock.Refused, penstock.InvalidInput, penstock.NotFound)


def outgoing(item: Item) -> penstock.Outgoing:
    return penstock.Outgoing(payload=item.payload, **item.options)


def taken(delivery: penstock.Delivery | penstock.AsyncDelivery) -> Taken:
    message = message_of(delivery.payload, delivery.headers)
    content = content_of(json.loads(delivery.payload), delivery.headers, delivery.priority, delivery.key)
    return Taken(delivery.id, message, delivery.token, delivery.attempt, delivery, content)


def settlement(one: Taken, verb: str, delay: float | None) -> penstock.Settlement:
    if verb == "ack":
        return penstock.Ack(one.handle)
    if verb == "nak":
        return penstock.Nak(one.handle, "chaos", delay)
    if verb == "reject":
        return penstock.Reject(one.handle, "chaos")
    return penstock.Reschedule(one.handle, delay or 0, "chaos")


def state_of(settled: penstock.Settled) -> str:
    if settled.error is not None:
        raise Denied(str(settled.error))
    return str(settled.state)


class PythonPort:
    """Threads may share a store, so the ports of a process share one."""

    def __init__(self, store: penstock.Store) -> None:
        self.store = store

    def send(self, queue: str, items: list[Item]) -> list[str]:
        try:
            if len(items) == 1:
                return [self.store.queue(queue).send(items[0].payload, **items[0].options)]
            return self.store.queue(queue).send_many([outgoing(item) for item in items])
        except REFUSED as error:
            raise Denied(str(error)) from error

    def receive(self, queue: str, group: str, consumer: str, limit: int, lease_seconds: float) -> list[Taken]:
        got = self.store.queue(queue).receive(limit, group, consumer, lease_seconds)
        return [taken(one) for one in got]

    def settle(self, queue: str, group: str, taken: Taken, verb: str, delay: float | None) -> str | None:
        return state_of(self.store.queue(queue).settle([settlement(taken, verb, delay)])[0])

    def extend(self, queue: str, group: str, taken: Taken, seconds: float) -> None:
        try:
            taken.handle.extend(seconds)
        except penstock.LeaseLost as error:
            raise Denied(str(error)) from error

    def close(self) -> None:
        pass


class EventLoop:
    """An event loop in a thread of its own, with one asynchronous store."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True, name="chaos-loop").start()
        self.store: penstock.AsyncStore = self.run(penstock.connect_async(url))

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()


class AsyncPort:
    """Calls of several threads share one loop, where Penstock coalesces them into one transaction."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._store = loop.store

    def send(self, queue: str, items: list[Item]) -> list[str]:
        try:
            if len(items) == 1:
                return [self._loop.run(self._send_one(queue, items[0]))]
            return self._loop.run(self._send_many(queue, items))
        except REFUSED as error:
            raise Denied(str(error)) from error

    async def _send_one(self, queue: str, item: Item) -> str:
        return await (await self._queue(queue)).send(item.payload, **item.options)

    async def _send_many(self, queue: str, items: list[Item]) -> list[str]:
        return await (await self._queue(queue)).send_many([outgoing(item) for item in items])

    async def _queue(self, queue: str) -> penstock.AsyncQueue:
        return await self._store.queue(queue)

    def receive(self, queue: str, group: str, consumer: str, limit: int, lease_seconds: float) -> list[Taken]:
        async def call() -> list[penstock.AsyncDelivery]:
            return await (await self._queue(queue)).receive(limit, group, consumer, lease_seconds)

        return [taken(one) for one in self._loop.run(call())]

    def settle(self, queue: str, group: str, taken: Taken, verb: str, delay: float | None) -> str | None:
        async def call() -> list[penstock.Settled]:
            return await (await self._queue(queue)).settle([settlement(taken, verb, delay)])

        return state_of(self._loop.run(call())[0])

    def extend(self, queue: str, group: str, taken: Taken, seconds: float) -> None:
        try:
            self._loop.run(taken.handle.extend(seconds))
        except penstock.LeaseLost as error:
            raise Denied(str(error)) from error

    def close(self) -> None:
        pass
