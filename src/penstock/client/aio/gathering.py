"""Calls made by many tasks, handed to one thread in groups.

While the thread works on a group the next one gathers, so groups grow with the load. When a group of several was
answered, the next one waits a moment for them to come back with their next call, as long as they keep coming: otherwise
callers would fall into camps that take turns, and each commit would serve only one of them. A lone caller never waits.

A call costs one future; callers who want the same with one item each make one call together; a group costs one wake-up
in each direction. All state belongs to the event loop: the thread only sees the group it was given, and nothing needs a
lock.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any

from penstock.client.aio.call import Answer, Call, SharedAnswer, SharedCall, attempt, own_copy

# One transaction must not grow without bound: others wait for the write lock meanwhile.
MAX_GROUP = 10_000
# A call that is made together is not divided among groups, so it stays small beside them.
MAX_TOGETHER = 1_000
# A group waits for those who were just answered, a moment at a time, as long as some came within the last one. Event
# loops count in milliseconds.
MOMENT_SECONDS = 0.001
LONGEST_SECONDS = 0.003


class Gatherer:
    """One thread, started by the first call. `run` sets the outcome of each call: a result or an exception."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        run: Callable[[Sequence[Call]], None],
        cap: int = MAX_GROUP,
        waits: bool = False,
    ) -> None:
        """`waits` says that a larger group costs hardly more than a small one, so that company is worth a moment."""
        self._loop = loop
        self._waits = waits
        self._name = name
        self._run = run
        self._cap = cap
        self._calls: deque[Call] = deque()
        self._busy = False
        self._moment: asyncio.TimerHandle | None = None
        self._more = 0  # callers that wait beyond the one of each call
        self._answering = 0  # callers of the group that the thread has
        self._expected = 0
        self._inbox: SimpleQueue[list[Call] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        # Called before a group goes: whoever gathers calls too can add what it has.
        self.hand_in: Callable[[], None] = lambda: None

    def submit(self, call: Call) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self.post(call, future)
        return future

    def post(self, call: Call, answer: Answer) -> None:
        """As `submit`, for those who are told otherwise than by a future."""
        call.future = answer
        self._calls.append(call)
        if call.callers > 1:
            self._more += call.callers - 1
        if not self._busy:
            self._busy = True
            # Not at once: the other tasks that are about to run can still join.
            self._loop.call_soon(self._hand_over)
        elif self._moment is not None:
            self._end_moment()

    def share(
        self,
        operation: Callable[..., Any],
        item: Any,
        key: Hashable,
        merge: Callable[[Sequence[Call]], list[Any]],
    ) -> asyncio.Future[list[Any]]:
        """As `submit` with one item. Who comes right after another with the same operation joins its call."""
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        last = self._calls[-1] if self._calls else None
        if type(last) is SharedCall and last.operation is operation and last.weight < MAX_TOGETHER:
            last.join(item, future)
            self._more += 1
            if self._moment is not None:
                self._end_moment()
        else:
            call = SharedCall(operation, key, merge)
            call.join(item, future)
            self.post(call, SharedAnswer(call.futures))
        return future

    async def answer(self, call: Call) -> Any:
        """As `submit`, for a call with `unwanted`: a task may be cancelled after its answer came, before it goes on."""
        future = self.submit(call)
        try:
            return await future
        except asyncio.CancelledError:
            if call.unwanted is not None and not future.cancelled() and future.done() and future.exception() is None:
                call.unwanted(future.result())
            raise

    async def drain(self) -> None:
        """Until everything submitted so far is done."""
        if self._thread is not None or self._calls:
            await self.submit(Call(lambda: None))

    def end(self) -> None:
        """Let the thread go when it is done with the group it has; nothing may be submitted any more."""
        self._inbox.put(None)

    def join(self) -> None:
        """After `end`, when drained: the thread has nothing left to do but to return."""
        if self._thread is not None:
            self._thread.join()

    # -- on the event loop -----------------------------------------------------------------------------------------

    def _end_moment(self) -> None:
        """When all are there that were waited for."""
        if self._moment is not None and self._waiting >= self._expected:
            self._moment.cancel()
            self._moment = None
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        self._moment = None
        self.hand_in()
        before = self._waiting
        group = self._next_group()
        self._answering = before - self._waiting
        self._busy = bool(group)
        if not group:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._inbox.put(group)

    def _next_group(self) -> list[Call]:
        """The oldest calls, as many as may go together, without those cancelled before they began."""
        group: list[Call] = []
        room = self._cap
        while self._calls and (room >= self._calls[0].weight or not group):
            call = self._calls.popleft()
            if call.callers > 1:
                self._more -= call.callers - 1
            if call.begin():
                group.append(call)
                room -= call.weight
        return group

    @property
    def _waiting(self) -> int:
        """How many callers wait."""
        return len(self._calls) + self._more

    def _deliver(self, group: list[Call]) -> None:
        for call in group:
            outcome, future = call.outcome, call.future
            if future.cancelled():
                if call.unwanted is not None and not isinstance(outcome, BaseException):
                    call.unwanted(outcome)
            elif isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        self._expected = self._waiting + self._answering
        if self._waits and self._expected > 1:
            # Counted from when they know: what follows from the answers is done first.
            self._loop.call_soon(self._expect, self._loop.time() + LONGEST_SECONDS)
        else:
            self._hand_over()

    def _expect(self, until: float) -> None:
        """Wait until all are there; as long as they keep coming, and not longer."""
        if self._waiting >= self._expected or self._loop.time() >= until:
            self._hand_over()
        else:
            self._moment = self._loop.call_later(MOMENT_SECONDS, self._look, until, self._waiting)

    def _look(self, until: float, before: int) -> None:
        self._moment = None
        # After what lies there unread: timers come before it.
        self._loop.call_soon(self._loop.call_soon, self._decide, until, before)

    def _decide(self, until: float, before: int) -> None:
        self.hand_in()
        if self._waiting == before:
            self._hand_over()
        else:
            self._expect(until)

    # -- on the thread ---------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (group := self._inbox.get()) is not None:
            failure = attempt(partial(self._run, group))
            if failure is not None:  # a mistake in here, and still everybody gets an answer
                for call in group:
                    call.outcome = own_copy(failure)
            try:
                self._loop.call_soon_threadsafe(self._deliver, group)
            except RuntimeError:  # the loop was closed: nobody is there to be told
                return


def run_each(calls: Sequence[Call]) -> None:
    """One after the other, each for itself."""
    for call in calls:
        call.outcome = attempt(call.run)
