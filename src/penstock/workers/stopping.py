"""Signals: the first one asks a worker to stop, the second one to stop at once."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Callable
from queue import SimpleQueue
from types import FrameType, TracebackType
from typing import Any

logger = logging.getLogger("penstock.worker")
STOPPING = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGQUIT", "SIGBREAK") if hasattr(signal, name)
)


class Stopper:
    """While it is open, signals are taken as requests. Only the main thread may do that; elsewhere it does nothing, and
    whoever started the worker stops it.

    A thread of its own obeys: a signal may come while the main thread, or the handler of the signal before, has the
    very lock that obeying needs. Only a simple queue may be put into at any moment.
    """

    def __init__(self, request: Callable[[], None]) -> None:
        self._request = request
        self._before: dict[int, Any] = {}
        self._heard: SimpleQueue[int | None] = SimpleQueue()
        self._obeying = threading.Thread(target=self._obey, name="penstock-signals", daemon=True)

    def __enter__(self) -> Stopper:
        if threading.current_thread() is threading.main_thread():
            self._obeying.start()
            for number in STOPPING:
                self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            with contextlib.suppress(
                TypeError, ValueError
            ):  # a handler that was not set from Python cannot be restored
                signal.signal(number, before)
        if self._before:
            self._heard.put(None)
            self._obeying.join()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._heard.put(number)

    def _obey(self) -> None:
        while (number := self._heard.get()) is not None:
            logger.info("%s: stopping", signal.Signals(number).name)
            self._request()
            if hasattr(signal, "SIGQUIT") and number == signal.SIGQUIT:
                self._request()  # as a second signal: at once
