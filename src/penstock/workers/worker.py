"""The worker: receives messages, runs handlers, settles, renews its leases, and stops gracefully."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

import msgspec

from penstock.client.aio.queue import AsyncQueue
from penstock.client.queue import Queue
from penstock.client.store import Store
from penstock.domain.errors import InvalidInput
from penstock.domain.validation import check_integer, check_name, check_seconds, nearest, shown
from penstock.engines.contract import Receipt
from penstock.workers.app import MAX_CONCURRENCY, App, Handler, as_app
from penstock.workers.backoff import call_with_backoff
from penstock.workers.fetcher import Fetcher
from penstock.workers.heartbeat import LeaseKeeper, give_up, log_failure
from penstock.workers.lease_batch import AnyDelivery, AsyncWorkerDelivery, WorkerDelivery
from penstock.workers.loop import LoopSlots, LoopThread
from penstock.workers.priority_slots import PrioritySlots
from penstock.workers.processes import ProcessSlots
from penstock.workers.signals import StopSignals
from penstock.workers.slots import Slots
from penstock.workers.source import Observer, QueueSource
from penstock.workers.sweeper import Sweeper
from penstock.workers.threads import ThreadSlots

logger = logging.getLogger("penstock.worker")
# Time for the last settlements, even when the grace period is over.
FINAL_SETTLE_SECONDS = 5.0
POLL_SECONDS = 0.01
# The kernel may deliver a signal to any thread, and Python runs its handler only when the main thread runs: wake it.
SIGNAL_SECONDS = 0.5
# At a stop, handlers that wait for other messages get this long once no other handler runs.
AWAY_SECONDS = 1.0


class SourceStatus(msgspec.Struct, frozen=True):
    """The state of one queue of a worker. `done` counts by settlement since the start."""

    queue: str
    group: str
    handler: str
    running: int
    waiting: int
    index: int
    living: int
    done: dict[str, int]
    stuck: int = 0
    """Handlers that were given up but still run, because they cannot be killed."""


class Worker:
    """Runs handlers: `penstock.Worker(store, {"orders": handle}, concurrency=8).run()`.

    `handlers` is an `App`, or maps queues to functions. `concurrency` is how many handlers of one queue run at the same
    time; `slots` limits all queues together, by priority if it is a map such as `{0: 10, 5: 4}`. `queues` limits what
    is accepted, and `accept` changes it later. After two missed heartbeats other workers take over. At a stop, handlers
    get `grace_seconds` to finish; the rest is released. One of all workers sweeps the store every `sweep_seconds`
    (None: not this one).
    """

    def __init__(
        self,
        store: Store,
        handlers: App | Mapping[str, Callable[..., Any]],
        *,
        concurrency: int = 8,
        slots: int | Mapping[int, int] | None = None,
        queues: Iterable[str] | None = None,
        name: str | None = None,
        heartbeat_seconds: float = 5,
        grace_seconds: float = 25,
        sweep_seconds: float | None = 1,
        observer: Observer | None = None,
    ) -> None:
        if not isinstance(store, Store):
            raise InvalidInput(f"a worker needs a store from penstock.connect(url), not {shown(store)}")
        self.store = store
        self.app = as_app(handlers)
        self.concurrency = check_integer("concurrency", concurrency, 1, MAX_CONCURRENCY)
        self.heartbeat_seconds = check_seconds("heartbeat_seconds", heartbeat_seconds, above=True)
        self.grace_seconds = check_seconds("grace_seconds", grace_seconds)
        self.sweep_seconds = (
            None if sweep_seconds is None else check_seconds("sweep_seconds", sweep_seconds, above=True)
        )
        self.name = check_name("name", name) if name is not None else _generated_name()
        self._priority_slots = None if slots is None else PrioritySlots(slots)
        self._observer = observer
        self._accepted = None if queues is None else self._known(queues)
        self._sources: dict[QueueSource, Slots] = {}
        self._loop: LoopThread | None = None
        self._fetcher: Fetcher | None = None
        self._keeper: LeaseKeeper | None = None
        self._ended = threading.Event()
        self._immediate = threading.Event()
        self._swept = threading.Event()
        self._failure: BaseException | None = None

    # -- running ---------------------------------------------------------------------------------------------------

    def run(self, once: bool = False, patience_seconds: float = 0) -> None:
        """Run until a signal or `request_stop`: SIGTERM or SIGINT stop gracefully, a second one at once. With `once`,
        run until the queues are empty. A store that is unavailable at the start is retried for `patience_seconds`; one
        that fails later is retried without limit."""
        with StopSignals(self.request_stop):
            call_with_backoff("the store of this worker", lambda: self.start(once=once), patience_seconds, self._ended)
            try:
                while not self._ended.wait(SIGNAL_SECONDS):
                    pass
            finally:
                self.stop()

    def start(self, once: bool = False) -> None:
        """Start in the background; call `stop` afterwards."""
        if self._keeper is not None:
            raise InvalidInput("this worker was started already: make another one")
        engine = self.store.engine
        self._declare()
        try:
            self._make_sources()
            keeper = LeaseKeeper(engine, self.name, self._sources, self.heartbeat_seconds, self._fail, self._probe_loop)
            keeper.register()
        except BaseException:
            self._sources.clear()
            self._close_loop()
            raise
        self._keeper = keeper
        idle = self.request_stop if once else _do_nothing
        fetcher = self._fetcher = Fetcher(
            engine, self.name, self._sources, self._priority_slots, self._fail, idle, keeper.register_again
        )
        for source in self._sources:
            source.wake = fetcher.wake
        if self._priority_slots is not None:
            self._priority_slots.on_free = self._slot_freed
        logger.info("worker %s started: %s", self.name, ", ".join(self.accepted), extra={"consumer": self.name})
        self._keeper.start()
        if self.sweep_seconds is not None:
            sweeper = Sweeper(engine, self.sweep_seconds)
            threading.Thread(target=self._sweep, args=(sweeper,), name="penstock-sweeper", daemon=True).start()
        for slots in self._sources.values():
            slots.start()
        fetcher.start()

    def stop(self) -> None:
        """Stop gracefully and wait: running handlers may finish within the grace period, the rest is released."""
        fetcher, keeper = self._fetcher, self._keeper
        if fetcher is None or keeper is None:
            return
        self._fetcher = None
        self._ended.set()
        ends = time.monotonic() + self.grace_seconds
        for source, slots in self._sources.items():
            slots.stop()
            source.close()
        self._await_receive(fetcher, ends)
        for source in self._sources:
            source.give_back_all()  # of a receive that returned while its source was closed
        self._await_handlers(ends)
        for source, slots in self._sources.items():
            self._cut_short(source, slots)
        left = max(FINAL_SETTLE_SECONDS if not self._immediate.is_set() else 1.0, ends - time.monotonic())
        if not fetcher.finish(left):
            logger.warning("worker %s leaves settlements behind: their leases will end by themselves", self.name)
        keeper.stop()
        log_failure(keeper.deregister, "leaving")
        for slots in self._sources.values():
            slots.close()
        self._swept.wait(FINAL_SETTLE_SECONDS if self.sweep_seconds is not None else 0)
        self._close_loop()
        logger.info("worker %s stopped", self.name, extra={"consumer": self.name})
        if self._failure is not None:
            raise self._failure

    def request_stop(self) -> None:
        """Request a graceful stop; the second request stops at once. Returns immediately, from any thread."""
        if self._ended.is_set():
            self._immediate.set()
        self._ended.set()

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- inspection and changes ------------------------------------------------------------------------------------

    @property
    def accepted(self) -> list[str]:
        """The queues that are received from."""
        every = sorted({handler.queue for handler in self.app.handlers.values()})
        return [queue for queue in every if self._accepted is None or queue in self._accepted]

    def accept(self, queues: Iterable[str] | None) -> None:
        """Receive only from these queues from now on; from none when empty, from all with None. What was received
        already is still handled."""
        self._accepted = None if queues is None else self._known(queues)
        for source in self._sources:
            source.accepted = source.name in self.accepted
        if self._fetcher is not None:
            self._fetcher.committed()

    def status(self) -> list[SourceStatus]:
        infos = {} if self._keeper is None else self._keeper.infos
        return [
            SourceStatus(
                queue=source.name,
                group=source.group,
                handler=source.handler.name,
                running=slots.unfinished,
                waiting=len(source.buffer),
                index=infos[source].index if source in infos else 0,
                living=infos[source].living if source in infos else 0,
                done=dict(source.counts),
                stuck=slots.stuck,
            )
            for source, slots in self._sources.items()
        ]

    # -- setup -----------------------------------------------------------------------------------------------------

    def _declare(self) -> None:
        """Declare the app's policies and schedules."""
        for handler in self.app.handlers.values():
            if handler.policy:
                self.store.queue(handler.queue, **handler.policy)
        for name, schedule in self.app.schedules.items():
            self.store.schedule(name, **schedule)

    def _make_sources(self) -> None:
        for handler in self.app.handlers.values():
            queue = self.store.queue(handler.queue)
            policy = queue.policy()
            group = handler.group or policy.default_group
            source = QueueSource(handler, queue, group, policy, handler.concurrency or self.concurrency)
            source.priority_slots = self._priority_slots
            source.observer = self._observer
            source.fail = self._fail
            source.accepted = source.name in self.accepted
            slots = self._make_slots(source, handler, queue)
            if self.store.executor.tracing is not None:
                slots.call = self.store.executor.tracing.wrapped(slots.call, handler.signature.is_async)
            self._sources[source] = slots

    def _make_slots(self, source: QueueSource, handler: Handler, queue: Queue) -> Slots:
        if not handler.signature.is_async:
            source.make = lambda receipt: _deliveries(receipt, queue)
            return ProcessSlots(source) if handler.run == "process" else ThreadSlots(source)
        if self._loop is None:
            self._loop = LoopThread(self.store.engine)
            self._loop.store.executor.tracing = self.store.executor.tracing
        awaited = AsyncQueue(self._loop.store, queue.name)
        source.make = lambda receipt: _async_deliveries(receipt, awaited)
        return LoopSlots(source, self._loop)

    def _known(self, queues: Iterable[str]) -> set[str]:
        names = [queues] if isinstance(queues, str) else list(queues)
        known = {handler.queue for handler in self.app.handlers.values()}
        for name in names:
            if name not in known:
                raise InvalidInput(f"there is no handler for queue {shown(name)}{nearest(str(name), known)}")
        return set(names)

    # -- background ------------------------------------------------------------------------------------------------

    def _sweep(self, sweeper: Sweeper) -> None:
        pause = 0.0
        while not self._ended.wait(pause):
            pause = sweeper.turn()
        self._swept.set()

    def _slot_freed(self) -> None:
        for slots in self._sources.values():
            slots.notify()
        if self._fetcher is not None:
            self._fetcher.slot_freed()

    def _probe_loop(self, now: float) -> None:
        """Log when the event loop is blocked, and when it responds again. Called by the keeper's thread."""
        if self._loop is None or not self._loop.probe(now):
            return
        about = {"consumer": self.name}
        if self._loop.is_blocked:
            blocking = [slots.source for slots in self._sources.values() if isinstance(slots, LoopSlots)]
            names = ", ".join(sorted({source.name for source in blocking}))
            logger.error("a handler blocks the event loop: nothing is received for %s", names, extra=about)
        else:
            logger.warning("the event loop turns again", extra=about)
            if self._fetcher is not None:
                self._fetcher.wake()

    def _fail(self, error: BaseException) -> None:
        """Stop on an error that is not retried; `run` or `stop` raise it."""
        logger.error("worker %s stops: %s", self.name, error, extra={"consumer": self.name})
        self._failure = self._failure or error
        self._ended.set()

    def _await_receive(self, fetcher: Fetcher, ends: float) -> None:
        while not fetcher.stop_receiving(POLL_SECONDS) and time.monotonic() < ends and not self._immediate.is_set():
            pass

    def _await_handlers(self, ends: float) -> None:
        """Wait until all handlers have finished. Handlers that only wait for other messages are not awaited once no
        other runs, because this worker receives nothing more; except for at_most_once messages, which would be lost."""
        away_since = time.monotonic()
        while any(slots.unfinished for slots in self._sources.values()) and time.monotonic() < ends:
            if any(
                slots.busy or (slots.unfinished and source.policy.at_most_once)
                for source, slots in self._sources.items()
            ):
                away_since = time.monotonic()
            elif time.monotonic() - away_since > AWAY_SECONDS:
                return
            if self._immediate.wait(POLL_SECONDS):
                return

    def _cut_short(self, source: QueueSource, slots: Slots) -> None:
        """End running handlers where possible and release their messages without counting the attempt. An at_most_once
        message becomes a dead letter: its handler may have done its work already."""
        reason = "the worker stopped before its handler had finished"
        for slot in slots.running():
            if source.policy.at_most_once:
                give_up(source, slots, slot, reason)
            else:
                source.release(slots.give_up(slot, reason), reason)

    def _close_loop(self) -> None:
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def __repr__(self) -> str:
        return f"<Worker {self.name!r} of {', '.join(self.accepted)}>"


def _deliveries(receipt: Receipt, queue: Queue) -> list[AnyDelivery]:
    return [WorkerDelivery(row, receipt, queue) for row in receipt.rows]


def _async_deliveries(receipt: Receipt, queue: AsyncQueue) -> list[AnyDelivery]:
    return [AsyncWorkerDelivery(row, receipt, queue) for row in receipt.rows]


def _generated_name() -> str:
    """Unique also in containers that share a host name and a process id."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def _do_nothing() -> None:
    """`on_idle` of a worker that keeps running."""
