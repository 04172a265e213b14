"""A producer gathers sends and puts them in together: fewer transactions, at the price of a short wait."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from penstock.domain.message import Draft, Outgoing, draft
from penstock.domain.times import check_integer, check_seconds

if TYPE_CHECKING:
    from penstock.client.queue import Queue


class Producer:
    """Made by `queue.producer(...)`; used in a `with` block, which sends what is left at its end.

    A background thread sends what has waited long enough. When a send fails, its messages stay gathered, and the
    error is raised by the next `send`, `flush` or the end of the block: nothing is dropped in silence.
    """

    def __init__(self, queue: Queue, batch_size: int, linger_seconds: float) -> None:
        self.queue = queue
        self.batch_size = check_integer("batch_size", batch_size, 1, 1_000_000)
        self.linger_seconds = check_seconds("linger_seconds", linger_seconds)
        self._waiting: list[Draft] = []
        self._oldest_at = 0.0
        self._error: BaseException | None = None
        self._closed = False
        self._changed = threading.Condition(threading.RLock())
        self._lingerer: threading.Thread | None = None

    def send(self, payload: Any, **options: Any) -> None:
        """Gather one message; the options are those of `queue.send`. Sends at once when the batch is full."""
        outgoing = payload if isinstance(payload, Outgoing) else Outgoing(payload=payload, **options)
        message = draft(outgoing)
        with self._changed:
            self._raise_error()
            if self._closed:
                raise RuntimeError("this producer is closed")
            self._waiting.append(message)
            if len(self._waiting) == 1:
                self._oldest_at = time.monotonic()
                self._start_lingering()
            if len(self._waiting) >= self.batch_size:
                self._put()

    def flush(self) -> None:
        """Send what was gathered, now."""
        with self._changed:
            self._error = None
            self._put()

    def close(self) -> None:
        """Send what is left and stop; an error leaves the producer usable, so that close can be called again."""
        self.flush()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._lingerer is not None:
            self._lingerer.join()

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        finally:
            with self._changed:
                self._closed = True
                self._changed.notify_all()

    def _put(self) -> None:
        if self._waiting:
            self.queue._send(self._waiting, None)
            self._waiting = []

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _start_lingering(self) -> None:
        if self._lingerer is None:
            self._lingerer = threading.Thread(target=self._linger, name="penstock-producer", daemon=True)
            self._lingerer.start()
        self._changed.notify_all()

    def _linger(self) -> None:
        with self._changed:
            while not self._closed:
                if not self._waiting or self._error is not None:
                    self._changed.wait(None if not self._waiting else self.linger_seconds or 0.001)
                    continue
                left = self._oldest_at + self.linger_seconds - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                try:
                    self._put()
                except Exception as error:
                    self._error = error
