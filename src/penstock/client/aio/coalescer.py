"""Coalesces the calls of many tasks into groups, each of which a thread runs in one transaction (group commit).

Calls of the same operation become one call with the items of all: one send, one settlement, one receive. While the
thread runs a group the next one fills, so groups grow with the load. After a group of several callers the next one
waits a moment for them to come back with their next call, as long as they keep coming: otherwise callers would fall
into camps that take turns, and each commit would serve only one camp. A lone caller never waits.

Calls of one group were made concurrently, so their order is free where no program can see it. Sends keep theirs, and a
write that is not coalesced divides the sends before it from those after it. Settlements run first and receives last,
each sorted by key: every transaction takes its locks in the same order, so those of two servers cannot deadlock.

All state belongs to the event loop. The thread only sees the group that it was given, and nothing needs a lock.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

import msgspec

from penstock.client.aio.call import Call, Completion, Operation, Phase, own_copies, place_of
from penstock.domain.errors import StoreError
from penstock.engines.contract import Engine

# Messages of one transaction: others wait for the write lock meanwhile.
MAX_GROUP = 10_000
# A group waits for the callers of the one before it, this long at a time, as long as some came within the last time.
# Event loops count in milliseconds.
MOMENT_SECONDS = 0.001
LONGEST_SECONDS = 0.003


class CallGroup(msgspec.Struct, eq=False):
    """Calls that run in one transaction."""

    weight: int = 0
    callers: int = 0
    calls: list[Call] = msgspec.field(default_factory=list)
    # Calls with items that others can join.
    joinable: dict[Operation, Call] = msgspec.field(default_factory=dict)

    def add(self, operation: Operation, items: list[Any] | None, completion: Completion) -> None:
        self.callers += 1
        if items is None:
            self.calls.append(Call(operation, None, [(completion, 1)]))
            if operation.phase is Phase.WRITE and self.joinable:
                # Later sends must not overtake this write.
                self.joinable = {one: call for one, call in self.joinable.items() if one.phase is not Phase.WRITE}
        elif (call := self.joinable.get(operation)) is None:
            self.joinable[operation] = call = Call(operation, items[:], [(completion, len(items))])
            self.calls.append(call)
        else:
            call.items += items  # type: ignore[operator]  # a call that can be joined has items
            call.callers.append((completion, len(items)))

    def ready(self) -> list[Call]:
        """The calls in the order in which they run, without those whose callers were all cancelled."""
        return sorted(filter(Call.drop_cancelled, self.calls), key=place_of)


class Coalescer:
    """One thread, started by the first call. `run` sets the outcomes of each call."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        run: Callable[[Sequence[Call]], None],
        cap: int = MAX_GROUP,
        waits: bool = False,
    ) -> None:
        """`waits` says that a larger group costs hardly more than a small one, so that waiting for callers pays."""
        self._loop = loop
        self._waits = waits
        self._name = name
        self._run = run
        self._cap = cap
        self._groups: deque[CallGroup] = deque()
        self._busy = False
        self._moment: asyncio.TimerHandle | None = None
        self._pending = 0  # callers in the groups
        self._running = 0  # callers in the group that the thread has
        self._expected = 0
        self._inbox: SimpleQueue[list[Call] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, operation: Operation, items: list[Any] | None, completion: Completion, weight: int = 1) -> None:
        """Add a call to the group that fills; `weight` is its number of messages."""
        groups = self._groups
        is_alone = operation.phase is Phase.ALONE
        if not groups or is_alone or groups[-1].weight + weight > self._cap:
            groups.append(CallGroup())
        group = groups[-1]
        # Nothing joins a call that runs alone.
        group.weight += self._cap if is_alone else weight
        group.add(operation, items, completion)
        self._pending += 1
        if not self._busy:
            self._busy = True
            # Not at once: other tasks of this turn of the loop can still join.
            self._loop.call_soon(self._start_group)
        elif self._moment is not None and self._pending >= self._expected:
            self._moment.cancel()
            self._moment = None
            self._loop.call_soon(self._start_group)

    def call(self, operation: Operation, items: list[Any] | None = None, weight: int = 1) -> asyncio.Future[Any]:
        """As `submit`, with a future."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self.submit(operation, items, future, weight)
        return future

    async def result(self, operation: Operation, items: list[Any] | None = None, weight: int = 1) -> Any:
        """As `call`, for an operation with `discard`: a task may be cancelled after its outcome has come and before it
        runs again."""
        future = self.call(operation, items, weight)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                assert operation.discard is not None
                operation.discard(future.result())
            raise

    async def drain(self) -> None:
        """Wait until everything submitted so far is done."""
        if self._thread is not None or self._groups:
            await self.call(Operation(lambda: None))

    def end(self) -> None:
        """End the thread after the group it has; nothing may be submitted any more."""
        self._inbox.put(None)

    def join(self) -> None:
        """After `end`, when drained: the thread has nothing left to do but to return."""
        if self._thread is not None:
            self._thread.join()

    # -- on the event loop -----------------------------------------------------------------------------------------

    def _start_group(self) -> None:
        self._moment = None
        calls: list[Call] = []
        self._running = 0
        while self._groups and not calls:
            group = self._groups.popleft()
            self._running += group.callers
            calls = group.ready()
        self._pending -= self._running
        self._busy = bool(calls)
        if not calls:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._inbox.put(calls)

    def _deliver(self, calls: list[Call]) -> None:
        for call in calls:
            call.deliver()
        self._expected = self._pending + self._running
        if self._waits and self._expected > 1 and len(self._groups) <= 1:
            # Counted from when the callers know: what follows from their outcomes is done first.
            self._loop.call_soon(self._await_callers, self._loop.time() + LONGEST_SECONDS)
        elif self._groups:
            self._start_group()
        else:
            self._busy = False

    def _await_callers(self, until: float) -> None:
        """Start the next group when all callers are back, when none came within a moment, or when the time is up."""
        if self._pending >= self._expected or self._loop.time() >= until:
            self._start_group()
        else:
            self._moment = self._loop.call_later(MOMENT_SECONDS, self._end_moment, until, self._pending)

    def _end_moment(self, until: float, before: int) -> None:
        self._moment = None
        # Timers run before sockets are read: look again after what has arrived already.
        self._loop.call_soon(self._loop.call_soon, self._continue, until, before)

    def _continue(self, until: float, before: int) -> None:
        if self._pending == before:
            self._start_group()
        else:
            self._await_callers(until)

    # -- on the thread ---------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (calls := self._inbox.get()) is not None:
            try:
                self._run(calls)
            except BaseException as error:  # a mistake in here, and still every caller gets an outcome
                for call in calls:
                    call.fail(error)
            try:
                self._loop.call_soon_threadsafe(self._deliver, calls)
            except RuntimeError:  # the loop was closed
                return


def run_each(calls: Sequence[Call]) -> None:
    """Run calls one after the other, each for itself."""
    for call in calls:
        try:
            call.outcomes = call.run()
        except BaseException as error:
            call.fail(error)


def commit(engine: Engine, calls: Sequence[Call]) -> None:
    """Run calls in one transaction. When one fails that has several callers, only the caller at fault gets the error:
    the call runs again for each of them."""
    results: Sequence[Any]
    try:
        results = [calls[0].run()] if len(calls) == 1 else engine.together([call.run for call in calls])
    except BaseException as error:
        results = own_copies(error, len(calls))
    again: list[tuple[Call, list[Call]]] = []
    for call, outcomes in zip(calls, results, strict=True):
        if not isinstance(outcomes, BaseException):
            call.outcomes = outcomes
        elif len(call.callers) > 1 and not isinstance(outcomes, StoreError):
            again.append((call, call.split()))
        else:
            call.fail(outcomes)
    if again:
        commit(engine, [part for _, parts in again for part in parts])
        for call, parts in again:
            call.outcomes = [part.outcomes[0] for part in parts]
