"""Waiting for commits: one thread for all waiting tasks of a store, however many there are.

The thread sleeps in `engine.wait` while somebody waits, and says so when something was committed. Then everything that
is awaited is looked at, once each, and the tasks for which it is there are woken. All state belongs to the event loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from itertools import islice
from typing import Any

from penstock.client.aio.call import attempt, own_copy
from penstock.client.calling import BACKSTOP_SECONDS
from penstock.domain.errors import PenstockError
from penstock.engines.contract import Engine

ReadyIn = Callable[[], float | None]
# How long the thread may take to notice that nobody waits any more.
SLICE_SECONDS = 1.0
RETRY_SECONDS = 0.1
# In a busy store looking takes at most this share of the time, and at most this long passes between two looks.
LOOKING_SHARE = 0.2
LONGEST_REST_SECONDS = 0.1
# Commits are heard of, so looking without one is only for safety: this many things at a time, in turns, however many
# are awaited.
BACKSTOP_LOOKS = 50
# There may be one message for a thousand tasks. So this many are woken first, and while there is still something, twice
# as many each time: at the next commit, such as that of their receives, or after this long, because they may have been
# cancelled. That is twice as long each time too, because their receives may only wait for a slow disk.
FIRST_WOKEN = 16
WAKE_AGAIN_SECONDS = 0.01
# A timer for what comes due by itself is set anew after this long: clocks may be set meanwhile.
LONGEST_TIMER_SECONDS = 60.0


class Awaited:
    """Something that tasks wait for."""

    __slots__ = ("key", "ready_in", "share", "timer", "waiting")

    def __init__(self, key: Hashable, ready_in: ReadyIn) -> None:
        self.key = key
        self.ready_in = ready_in
        # Only the keys matter: woken in the order in which they came.
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
        self._looked = threading.Event()
        self._stopped = threading.Event()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._backstop: asyncio.TimerHandle | None = None

    async def until(self, key: Hashable, ready_in: ReadyIn, timeout_seconds: float) -> None:
        """Until `ready_in` says 0, the time is up, or the store closes."""
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
        """Wake everybody, and nobody waits from now on."""
        self._stopped.set()
        self._wanted.set()
        self._looked.set()
        if self._backstop is not None:
            self._backstop.cancel()
        for awaited in list(self._awaited.values()):
            self._rouse_all(awaited, None)

    async def end(self) -> None:
        """After the engine was closed, which wakes the thread too: let it go."""
        if self._thread is not None:
            await self._ended
            self._thread.join()

    # -- on the event loop -----------------------------------------------------------------------------------------

    def _begin(self, key: Hashable, ready_in: ReadyIn) -> Awaited:
        awaited = self._awaited[key] = Awaited(key, ready_in)
        self._wanted.set()
        if self._backstop is None:
            self._keep_looking()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="penstock-watcher", daemon=True)
            self._thread.start()
        # What was committed before now is found by this look. What comes later the thread hears of: it listens
        # already, or will call for another look when it has begun to.
        self._look([awaited])
        return awaited

    def _look(self, several: list[Awaited]) -> asyncio.Future[Any]:
        looking = self._read(lambda: [attempt(awaited.ready_in) for awaited in several])
        looking.add_done_callback(lambda done: self._judge(several, done.result()))
        return looking

    def _judge(self, several: list[Awaited], answers: list[Any]) -> None:
        for awaited, answer in zip(several, answers, strict=True):
            if self._awaited.get(awaited.key) is not awaited:
                continue
            if isinstance(answer, BaseException):
                self._rouse_all(awaited, answer)
            elif answer == 0:
                self._rouse_some(awaited)
            else:
                awaited.share = FIRST_WOKEN
                if answer is not None:
                    self._look_again_in(awaited, min(answer, LONGEST_TIMER_SECONDS))

    def _look_at_some(self) -> None:
        """The backstop: those that were not looked at for longest, which therefore go to the end."""
        some = list(islice(self._awaited.values(), BACKSTOP_LOOKS))
        for awaited in some:
            self._awaited[awaited.key] = self._awaited.pop(awaited.key)
        if some:
            # The next look is counted from the end of this one, so that looks never pile up in a slow store.
            self._look(some).add_done_callback(lambda _: self._keep_looking())
        else:
            self._backstop = None

    def _keep_looking(self) -> None:
        if not self._stopped.is_set():
            self._backstop = self._loop.call_later(BACKSTOP_SECONDS, self._look_at_some)

    def _look_again_in(self, awaited: Awaited, seconds: float) -> None:
        if awaited.timer is not None:
            awaited.timer.cancel()
        awaited.timer = self._loop.call_later(seconds, self._look, [awaited])

    def _rouse_some(self, awaited: Awaited) -> None:
        for future in list(islice(awaited.waiting, awaited.share)):
            del awaited.waiting[future]
            _wake(future, None)
        if awaited.waiting:
            self._look_again_in(awaited, WAKE_AGAIN_SECONDS * awaited.share / FIRST_WOKEN)
            awaited.share *= 2
        else:
            self._forget(awaited)

    def _rouse_all(self, awaited: Awaited, error: BaseException | None) -> None:
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

    def _look_at_all(self) -> None:
        if self._awaited and not self._stopped.is_set():
            looking = self._look(list(self._awaited.values()))
            looking.add_done_callback(lambda _: self._looked.set())
        else:
            self._looked.set()

    # -- on the thread ---------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        with suppress(RuntimeError):  # the loop was closed: nobody is there to be told
            try:
                while not self._stopped.is_set():
                    self._wanted.wait()
                    self._listen()
            finally:
                self._loop.call_soon_threadsafe(self._ended.set_result, None)

    def _listen(self) -> None:
        """While somebody waits. Begins with a look, for what was committed before listening began."""
        try:
            seen = self._engine.seen()
            self._call_for_a_look()
            while self._wanted.is_set() and not self._stopped.is_set():
                before, seen = seen, self._engine.wait(seen, SLICE_SECONDS)
                if seen != before:
                    self._call_for_a_look()
        except PenstockError:
            # The store cannot be read for now. Those who wait find out by their own looks; this thread tries again.
            self._stopped.wait(RETRY_SECONDS)

    def _call_for_a_look(self) -> None:
        began = time.monotonic()
        self._looked.clear()
        if not self._stopped.is_set():
            self._loop.call_soon_threadsafe(self._look_at_all)
            self._looked.wait(BACKSTOP_SECONDS)
        took = time.monotonic() - began
        self._stopped.wait(min(took * (1 / LOOKING_SHARE - 1), LONGEST_REST_SECONDS))


def _wake(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(own_copy(error))
