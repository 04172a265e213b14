"""A producer batches sends: fewer transactions, at the price of a short delay."""

from __future__ import annotations

import threading
import time
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from penstock.client.producer_batch import Gathered, ProducerBatch, logger, refusal, unwatch, watch
from penstock.domain.errors import StoreError
from penstock.domain.message import Outgoing, SendOptions, draft
from penstock.domain.validation import check_integer, check_seconds
from penstock.engines.contract import Engine

if TYPE_CHECKING:
    from penstock.client.queue import Queue

# Retry interval after an error of the store, however short the linger time.
PAUSE_SECONDS = 0.05


class Producer:
    """Made by `queue.producer(...)`; used in a `with` block, which sends what is left at its end.

    A message that `send` has returned for is taken: it is sent when the batch is full or it has waited long enough, as
    often as it takes, and never twice. `send` raises only for a message that it has not taken. One that the queue
    refuses does not hinder the others; its error is raised once, by the next `send`, `flush` or `close`, and stays in
    what `send` returned for it.
    """

    def __init__(self, queue: Queue, batch_size: int, linger_seconds: float) -> None:
        self.queue = queue
        self.batch_size = check_integer("batch_size", batch_size, 1, 1_000_000)
        self.linger_seconds = check_seconds("linger_seconds", linger_seconds)
        self._waiting: list[Gathered] = []
        self._batch = ProducerBatch(())
        self._refused: list[Gathered] = []
        self._due_at = 0.0
        self._closed = False
        self._changed = threading.Condition(threading.RLock())
        self._lingerer: threading.Thread | None = None

    def send(self, payload: Any, **options: Unpack[SendOptions]) -> Gathered:
        """Add one message to the batch, which is sent when it is full. The options are those of `queue.send`."""
        is_bare = not options or isinstance(payload, Outgoing)
        gathered = Gathered(draft(payload if is_bare else Outgoing(payload=payload, **options)))
        with self._changed:
            if self._closed:
                raise RuntimeError("this producer is closed")
            if self._batch and self._is_full():
                self._put()
            self._tell_refused()
            self._waiting.append(gathered)
            if len(self._waiting) == 1:
                self._linger_from(time.monotonic() + self.linger_seconds)
            if self._is_full():
                self._try_to_put()
        return gathered

    def flush(self) -> None:
        """Send the batch now."""
        with self._changed:
            self._put()
            self._tell_refused()

    def close(self) -> None:
        """Send what is left and stop; an error leaves the producer usable, so that close can be called again."""
        self.flush()
        self._stop()
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
            self._stop()

    @property
    def _engine(self) -> Engine:
        return self.queue.engine

    @property
    def _left(self) -> int:
        """How many messages are neither sent nor refused."""
        return len(self._waiting) + len(self._batch)

    def _put_at_exit(self) -> None:
        self.flush()

    def _is_full(self) -> bool:
        return self._left >= self.batch_size

    def _put(self) -> None:
        """A batch that was tried before is sent first and alone: it may be in the queue already."""
        while self._batch or self._waiting:
            if not self._batch:
                self._batch, self._waiting = ProducerBatch(self._waiting), []
            try:
                self.queue.executor.write(partial(self._batch.put, self.queue.engine, self.queue.name), alone=True)
            finally:
                self._refused += self._batch.refused
                self._batch.refused.clear()
        unwatch(self)

    def _try_to_put(self) -> None:
        """Send messages that were accepted already: after an error they stay, and the next call raises it."""
        try:
            self._put()
        except StoreError as error:
            logger.warning("messages for queue %r wait in a producer: %s", self.queue.name, error)
            self._linger_from(time.monotonic() + max(self.linger_seconds, PAUSE_SECONDS))

    def _tell_refused(self) -> None:
        if self._refused:
            refused, self._refused = self._refused, []
            raise refusal(refused)

    def _stop(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            if not self._waiting and not self._batch:
                unwatch(self)

    def _linger_from(self, due_at: float) -> None:
        self._due_at = due_at
        watch(self)
        if self._lingerer is None:
            self._lingerer = threading.Thread(target=self._linger, name="penstock-producer", daemon=True)
            self._lingerer.start()
        self._changed.notify_all()

    def _linger(self) -> None:
        with self._changed:
            while not self._closed:
                if not self._waiting and not self._batch:
                    self._changed.wait()
                elif (left := self._due_at - time.monotonic()) > 0:
                    self._changed.wait(left)
                else:
                    self._try_to_put()
