"""Waiting for commits: one thread for all waiting tasks of a store, however many there are.

The thread sleeps in `engine.wait` while any task waits, and notifies the loop of commits. Then every condition that is
awaited is polled once, and the tasks whose condition holds are woken. All state belongs to the event loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from itertools import islice
from typing import Any

from penstock.client.aio.call import own_copy
from penstock.client.executor import BACKSTOP_SECONDS
from penstock.domain.errors import PenstockError
from penstock.engines.contract import Engine

ReadyIn = Callable[[], float | None]
# How long the thread may take to notice that no task waits any more.
SLICE_SECONDS = 1.0
RETRY_SECONDS = 0.1
# In a busy store polling takes at most this share of the time, with at most this long between two polls.
POLLING_SHARE = 0.2
LONGEST_REST_SECONDS = 0.1
# Polling without a notification is only a safety net: this many conditions at a time, in turn.
BACKSTOP_POLLS = 50
# There may be one message for a thousand tasks. So this many are woken first, and twice as many each time while there
# is still something: at the next commit, or after this long, because woken tasks may have been cancelled. The delay
# doubles too, because their receives may only wait for a slow disk.
FIRST_WOKEN = 16
WAKE_AGAIN_SECONDS = 0.01
# Timers for due messages are renewed after this long: clocks may be set meanwhile.
LONGEST_TIMER_SECONDS = 60.0


class Awaited:
    """A condition that tasks wait for."""

    __slots__ = ("key", "ready_in", "share", "timer", "waiting")

    def __init__(self, key: Hashable, ready_in: ReadyIn) -> None:
        self.key = key
        self.ready_in = ready_in
        # An ordered set: tasks are woken in the order of their arrival.
        self.waiting: dict[asyncio.Future[None], None] = {}
        self.share = FIRST_WOKEN
        self.timer: asyncio.TimerHandle | None = None


class Watcher:
    """`read` runs an operation off the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        engine: Engine,
        read: Callable[[Callable[[], Any]], asyncio.Future[Any]],
    ) -> None:
        self._loop = loop
        self._engine = engine
        self._read = read
        self._awaited: dict[Hashable, Awaited] = {}
        self._thread: threading.Thread | None = None
        self._wanted = threading.Event()
        self._polled = threading.Event()
        self._stopped = threading.Event()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._backstop: asyncio.TimerHandle | None = None

    async def until(self, key: Hashable, ready_in: ReadyIn, timeout_seconds: float) -> None:
        """Return when `ready_in` returns 0, after the timeout, or when the store closes."""
        awaited = self._awaited.get(key) or self._begin(key, ready_in)
        future: asyncio.Future[None] = self._loop.create_future()
        awaited.waiting[future] = None
        timer = self._loop.call_later(timeout_seconds, _wake, future, None)
        try:
            await future
        finally:
            timer.cancel()
            awaited.waiting.pop(future, None)
            if not awaited.waiting:
                self._forget(awaited)

    def stop(self) -> None:
        """Wake all tasks; none waits from now on."""
        self._stopped.set()
        self._wanted.set()
        self._polled.set()
        if self._backstop is not None:
            self._backstop.cancel()
        for awaited in list(self._awaited.values()):
            self._wake_all(awaited, None)

    async def end(self) -> None:
        """Join the thread, after the engine was closed, which wakes it."""
        if self._thread is not None:
            await self._ended
            self._thread.join()

    # -- on the event loop -----------------------------------------------------------------------------------------

    def _begin(self, key: Hashable, ready_in: ReadyIn) -> Awaited:
        awaited = self._awaited[key] = Awaited(key, ready_in)
        self._wanted.set()
        if self._backstop is None:
            self._schedule_backstop()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="penstock-watcher", daemon=True)
            self._thread.start()
        # This poll finds what was committed before. The thread is notified of later commits: it listens already, or
        # polls again when it begins to.
        self._poll([awaited])
        return awaited

    def _poll(self, several: list[Awaited]) -> asyncio.Future[Any]:
        polling = self._read(lambda: [_attempt(awaited.ready_in) for awaited in several])
        polling.add_done_callback(lambda done: self._judge(several, done.result()))
        return polling

    def _judge(self, several: list[Awaited], answers: list[Any]) -> None:
        for awaited, answer in zip(several, answers, strict=True):
            if self._awaited.get(awaited.key) is not awaited:
                continue
            if isinstance(answer, BaseException):
                self._wake_all(awaited, answer)
            elif answer == 0:
                self._wake_some(awaited)
            else:
                awaited.share = FIRST_WOKEN
                if answer is not None:
                    self._poll_again_in(awaited, min(answer, LONGEST_TIMER_SECONDS))

    def _poll_some(self) -> None:
        """The safety net: poll the conditions that were polled least recently, and move them to the end."""
        some = list(islice(self._awaited.values(), BACKSTOP_POLLS))
        for awaited in some:
            self._awaited[awaited.key] = self._awaited.pop(awaited.key)
        if some:
            # The next poll is scheduled from the end of this one, so that polls never pile up in a slow store.
            self._poll(some).add_done_callback(lambda _: self._schedule_backstop())
        else:
            self._backstop = None

    def _schedule_backstop(self) -> None:
        if not self._stopped.is_set():
            self._backstop = self._loop.call_later(BACKSTOP_SECONDS, self._poll_some)

    def _poll_again_in(self, awaited: Awaited, seconds: float) -> None:
        if awaited.timer is not None:
            awaited.timer.cancel()
        awaited.timer = self._loop.call_later(seconds, self._poll, [awaited])

    def _wake_some(self, awaited: Awaited) -> None:
        for future in list(islice(awaited.waiting, awaited.share)):
            del awaited.waiting[future]
            _wake(future, None)
        if awaited.waiting:
            self._poll_again_in(awaited, WAKE_AGAIN_SECONDS * awaited.share / FIRST_WOKEN)
            awaited.share *= 2
        else:
            self._forget(awaited)

    def _wake_all(self, awaited: Awaited, error: BaseException | None) -> None:
        self._forget(awaited)
        for future in awaited.waiting:
            _wake(future, error)

    def _forget(self, awaited: Awaited) -> None:
        if awaited.timer is not None:
            awaited.timer.cancel()
        if self._awaited.get(awaited.key) is awaited:
            del self._awaited[awaited.key]
            if not self._awaited and not self._stopped.is_set():
                self._wanted.clear()

    def _poll_all(self) -> None:
        if self._awaited and not self._stopped.is_set():
            polling = self._poll(list(self._awaited.values()))
            polling.add_done_callback(lambda _: self._polled.set())
        else:
            self._polled.set()

    # -- on the thread ---------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        with suppress(RuntimeError):  # the loop was closed
            try:
                while not self._stopped.is_set():
                    self._wanted.wait()
                    self._listen()
            finally:
                self._loop.call_soon_threadsafe(self._ended.set_result, None)

    def _listen(self) -> None:
        """Listen while tasks wait. Begins with a poll, for what was committed before."""
        try:
            seen = self._engine.seen()
            self._request_poll()
            while self._wanted.is_set() and not self._stopped.is_set():
                before, seen = seen, self._engine.wait(seen, SLICE_SECONDS)
                if seen != before:
                    self._request_poll()
        except PenstockError:
            # The store cannot be read for now. Waiting tasks get the error from their own polls; this thread retries.
            self._stopped.wait(RETRY_SECONDS)

    def _request_poll(self) -> None:
        began = time.monotonic()
        self._polled.clear()
        if not self._stopped.is_set():
            self._loop.call_soon_threadsafe(self._poll_all)
            self._polled.wait(BACKSTOP_SECONDS)
        took = time.monotonic() - began
        self._stopped.wait(min(took * (1 / POLLING_SHARE - 1), LONGEST_REST_SECONDS))


def _attempt(ready_in: ReadyIn) -> float | BaseException | None:
    """Return the exception instead of raising it: the others are polled, too."""
    try:
        return ready_in()
    except BaseException as error:
        return error


def _wake(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(own_copy(error))
