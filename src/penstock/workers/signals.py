"""Stop signals: the first requests a graceful stop, the second an immediate one."""

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
STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGQUIT", "SIGBREAK") if hasattr(signal, name)
)


class StopSignals:
    """Context manager that turns signals into stop requests. Python sets signal handlers in the main thread only; in
    other threads this does nothing, and the caller stops the worker.

    A separate thread makes the request, because the interrupted code may hold the lock that the request needs. A
    `SimpleQueue` is safe to use in a signal handler.
    """

    def __init__(self, request: Callable[[], None]) -> None:
        self._request = request
        self._before: dict[int, Any] = {}
        self._received: SimpleQueue[int | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="penstock-signals", daemon=True)

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._thread.start()
            for number in STOP_SIGNALS:
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            with contextlib.suppress(
                TypeError, ValueError
            ):  # handlers that were not set from Python cannot be restored
                signal.signal(number, before)
        if self._before:
            self._received.put(None)
            self._thread.join()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._received.put(number)

    def _run(self) -> None:
        while (number := self._received.get()) is not None:
            logger.info("%s: stopping", signal.Signals(number).name)
            self._request()
            if hasattr(signal, "SIGQUIT") and number == signal.SIGQUIT:
                self._request()  # SIGQUIT counts as the second signal
