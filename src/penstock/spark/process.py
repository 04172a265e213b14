"""Runs handlers on Spark executors, for jobs that need more than one machine.

Each task of the job is an ordinary worker: it receives, extends its leases while handlers run, and settles message by
message. Spark schedules the tasks and restarts one when its executor dies; the leases of a dead task are released after
missed heartbeats, and its messages are delivered again.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
from pyspark import InheritableThread

from penstock.client.connection import connect
from penstock.client.store import Store
from penstock.domain.errors import GroupMisused, InvalidInput, PenstockError, StoreUnavailable
from penstock.domain.refusals import no_queue
from penstock.domain.validation import check_integer, check_seconds, nearest, shown
from penstock.spark.errors import FINAL, as_error
from penstock.spark.options import reachable_url
from penstock.workers.app import App
from penstock.workers.signals import StopSignals
from penstock.workers.worker import Worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("penstock.spark")
KIND = "process"
LOOK_SECONDS = 1.0
# Restarts of a job with an end; one without is restarted indefinitely, with backoff. The count is reset after a calm
# period.
TRIES_ONCE = 3
LONGEST_PAUSE_SECONDS = 60.0
CALM_SECONDS = 300.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of every task of a job."""

    job: str
    url: str
    queue: str
    target: str
    folder: str
    group: str | None
    concurrency: int
    heartbeat_seconds: float
    once: bool


class Processed(msgspec.Struct, frozen=True):
    """How many messages the tasks settled, by settlement. A killed task returns nothing here."""

    job: str
    tasks: int
    settled: dict[str, int]


def process(
    spark: SparkSession,
    url: str,
    queue: str,
    target: str,
    *,
    group: str | None = None,
    tasks: int | None = None,
    concurrency: int = 1,
    heartbeat_seconds: float = 5,
    once: bool = True,
) -> Processed:
    """Run `module:function` for the messages of a queue until none is left, or without `once` until interrupted."""
    context = spark.sparkContext
    plan = Plan(
        job=f"{context.applicationId}/{uuid4().hex[:8]}",
        url=reachable_url(url),
        queue=queue,
        target=target,
        folder=os.getcwd(),
        group=group,
        concurrency=check_integer("concurrency", concurrency, 1, 10_000),
        heartbeat_seconds=check_seconds("heartbeat_seconds", heartbeat_seconds, above=True),
        once=once,
    )
    count = context.defaultParallelism if tasks is None else check_integer("tasks", tasks, 1, 100_000)
    with connect(url) as store:
        _check(store, plan)
        counts = _Run(spark, store, plan, count).finish()
    settled: Counter[str] = Counter()
    for one in counts:
        settled.update(one)
    return Processed(plan.job, count, dict(settled))


class _Run:
    """A job that is restarted when Spark gives up: Spark fails a job whose task was lost several times, even when only
    executors died. Leased messages are delivered again in any case."""

    def __init__(self, spark: SparkSession, store: Store, plan: Plan, count: int) -> None:
        self.spark = spark
        self.store = store
        self.plan = plan
        self.count = count
        self.tries = 0
        self._stopped = Event()

    def finish(self) -> list[dict[str, int]]:
        """Run the job in a thread, so that an interrupt lets tasks finish; Spark's own handler would kill them."""
        with StopSignals(self._stop):
            while True:
                began = time.monotonic()
                try:
                    counts, failure = self._try()
                except StoreUnavailable as error:
                    counts, failure = [], error
                if failure is None or self._stopped.is_set():
                    return counts
                if time.monotonic() - began > CALM_SECONDS:
                    self.tries = 0
                self._wait(as_error("the job could not be finished", failure), failure)
                if self._stopped.is_set():
                    return counts

    def _try(self) -> tuple[list[dict[str, int]], Exception | None]:
        """The results of the tasks, or the failure. Tasks left running stop when the ledger entry is gone."""
        counts: list[dict[str, int]] = []
        failures: list[Exception] = []

        def run() -> None:
            try:
                tasks = self.spark.sparkContext.parallelize(range(self.count), self.count)
                counts.extend(tasks.mapPartitionsWithIndex(_Task(self.plan)).collect())
            except Exception as error:
                failures.append(error)

        self.store.engine.record(KIND, {self.plan.job: "{}"})
        try:
            running = InheritableThread(target=run, name="penstock-job", session=self.spark)
            running.start()
            while running.is_alive():
                running.join(LOOK_SECONDS)
            if failures and self.plan.job not in self.store.engine.ledger(KIND, self.plan.job):
                self._stopped.set()
        finally:
            stop(self.store, self.plan.job)
        return counts, failures[0] if failures else None

    def _wait(self, error: PenstockError, failure: Exception) -> None:
        """Wait before the next try. Raises errors that would recur, and the last one of a job with an end."""
        self.tries += 1
        if isinstance(error, FINAL) or (self.plan.once and self.tries > TRIES_ONCE):
            raise error from failure
        seconds = min(LONGEST_PAUSE_SECONDS, 2.0 ** (self.tries - 1))
        logger.warning("%s; it is begun again in %g seconds", error, seconds)
        self._stopped.wait(seconds)
        self.plan = msgspec.structs.replace(self.plan, job=f"{self.spark.sparkContext.applicationId}/{uuid4().hex[:8]}")

    def _stop(self) -> None:
        self._stopped.set()
        stop(self.store, self.plan.job)


def stop(store: Store, job: str) -> None:
    """Ask the tasks of a job to finish their messages and end."""
    store.engine.record(KIND, {}, [job])


def _check(store: Store, plan: Plan) -> None:
    """Check the function, the queue and the group before work starts."""
    find_function(plan.target, plan.folder)
    known = [info.name for info in store.queues()]
    if plan.queue not in known:
        raise no_queue(plan.queue, known, " to process")
    if plan.group is not None and store.engine.stream_position(plan.queue, plan.group) is not None:
        raise GroupMisused(
            f"group {plan.group!r} of queue {plan.queue!r} is read as a stream: process with another group"
        )


def find_function(target: str, folder: str) -> Callable[..., Any]:
    """Import `module:function`, also from the folder in which the job was started."""
    module_name, _, name = target.partition(":")
    if not module_name or not name:
        raise InvalidInput(f"{shown(target)} names no function: write it as module:function, such as shop.tasks:pack")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        raise InvalidInput(
            f"module {shown(module_name)} cannot be imported ({type(error).__name__}: {error}); on a cluster give it "
            "to the executors with --conf spark.submit.pyFiles=FILE, or spark-submit --py-files FILE"
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise InvalidInput(f"module {shown(module_name)} has no {shown(part)}{nearest(part, dir(found))}")
        found = getattr(found, part)
    if not callable(found):
        raise InvalidInput(f"{shown(target)} is {shown(found)}, not a function")
    function: Callable[..., Any] = found
    return function


class _Task:
    """A task that runs one worker. A class, so that executors find it by name."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def __call__(self, index: int, rows: Iterable[int]) -> Iterator[dict[str, int]]:
        with connect(self.plan.url) as store:
            yield self._work(store, index)

    def _work(self, store: Store, index: int) -> dict[str, int]:
        plan = self.plan
        app = App()
        app.add(plan.queue, find_function(plan.target, plan.folder), group=plan.group, concurrency=plan.concurrency)
        settled: Counter[str] = Counter()
        while True:
            worker = Worker(
                store,
                app,
                name=f"spark-{plan.job}-{index}-{uuid4().hex[:6]}",
                heartbeat_seconds=plan.heartbeat_seconds,
            )
            with _Watching(store, plan.job, worker.request_stop) as watching:
                worker.run(once=plan.once)
            for status in worker.status():
                settled.update(status.done)
            if watching.stopped or not plan.once or not self._wait_for_more(store):
                return dict(settled)

    def _wait_for_more(self, store: Store) -> bool:
        """Whether to wait for messages leased by others, which are delivered again if those die."""
        plan = self.plan
        patience = store.engine.policy(plan.queue).lease_seconds + 2 * plan.heartbeat_seconds
        due = store.engine.ready_in(plan.queue, plan.group)
        if due is None or due > patience:
            return False
        store.engine.wait(store.engine.seen(), min(due, LOOK_SECONDS))
        return True


class _Watching:
    """Stops a worker when the ledger entry of its job is gone, the only signal that reaches an executor."""

    def __init__(self, store: Store, job: str, request_stop: Callable[[], None]) -> None:
        self.stopped = False
        self._store = store
        self._job = job
        self._request_stop = request_stop
        self._over = Event()
        self._thread = Thread(target=self._watch, name="penstock-job", daemon=True)

    def _watch(self) -> None:
        while not self._over.is_set():
            if self._job not in self._store.engine.ledger(KIND, self._job):
                self.stopped = True
                self._request_stop()
                return
            self._over.wait(LOOK_SECONDS)

    def __enter__(self) -> _Watching:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
