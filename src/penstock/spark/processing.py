"""Handlers on Spark's executors, under leases: the worker for jobs that outgrow one machine.

Each task of the job is a worker like any other: it receives, keeps its leases while handlers run, and settles message
by message. Spark starts the tasks, on as many machines as it has, and starts one again when its executor dies; what
that one held is released when it has missed its heartbeats, and handed out again. The laws are those of every worker.
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

from penstock.client.connecting import connect
from penstock.client.store import Store
from penstock.domain.errors import GroupMisused, InvalidInput, NotFound, PenstockError, StoreUnavailable
from penstock.domain.names import nearest, shown
from penstock.domain.times import check_integer, check_seconds
from penstock.spark.options import reachable_url
from penstock.spark.telling import FINAL, as_error
from penstock.workers.app import App
from penstock.workers.stopping import Stopper
from penstock.workers.worker import Worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("penstock.spark")
KIND = "process"
LOOK_SECONDS = 1.0
# A job with an end is begun again so often; one without, as often as it takes, at growing distances. One that ran for
# a while counts from the beginning.
TRIES_ONCE = 3
LONGEST_PAUSE_SECONDS = 60.0
CALM_SECONDS = 300.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What every task of a job does."""

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
    """What a job did: how many messages its tasks settled, by settlement. A task that was killed tells nothing; what it
    settled is in the store all the same."""

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
    """Run `module:function` for the messages of a queue until there is nothing left to do, or without `once` until
    somebody interrupts it."""
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
        told = _Run(spark, store, plan, count).finish()
    settled: Counter[str] = Counter()
    for one in told:
        settled.update(one)
    return Processed(plan.job, count, dict(settled))


class _Run:
    """The job, begun again when Spark has given it up: for Spark a task that was lost some times is lost for good,
    though only its executors died. What it held is handed out again in any case."""

    def __init__(self, spark: SparkSession, store: Store, plan: Plan, count: int) -> None:
        self.spark = spark
        self.store = store
        self.plan = plan
        self.count = count
        self.tries = 0
        self._stopped = Event()

    def finish(self) -> list[dict[str, int]]:
        """In a thread, so that an interrupt asks the tasks to finish instead of killing them, as Spark's own would."""
        with Stopper(self._stop):
            while True:
                began = time.monotonic()
                try:
                    told, failure = self._try()
                except StoreUnavailable as error:
                    told, failure = [], error
                if failure is None or self._stopped.is_set():
                    return told
                if time.monotonic() - began > CALM_SECONDS:
                    self.tries = 0
                self._wait(as_error("the job could not be finished", failure), failure)
                if self._stopped.is_set():
                    return told

    def _try(self) -> tuple[list[dict[str, int]], Exception | None]:
        """What the tasks told, or why there is nothing. Tasks that Spark has left running end with the entry."""
        told: list[dict[str, int]] = []
        failures: list[Exception] = []

        def run() -> None:
            try:
                tasks = self.spark.sparkContext.parallelize(range(self.count), self.count)
                told.extend(tasks.mapPartitionsWithIndex(_Task(self.plan)).collect())
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
        return told, failures[0] if failures else None

    def _wait(self, error: PenstockError, failure: Exception) -> None:
        """Before the next try. What would fail again is an error, and so is a job that has an end and does not come to
        it."""
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
    """Ask the tasks of a job to finish what they hold, and end."""
    store.engine.record(KIND, {}, [job])


def _check(store: Store, plan: Plan) -> None:
    """Before work starts: the function can be found, and the queue and its group can be received from."""
    find_function(plan.target, plan.folder)
    known = [info.name for info in store.queues()]
    if plan.queue not in known:
        raise NotFound(f"there is no queue {shown(plan.queue)} to process{nearest(plan.queue, known)}")
    if plan.group is not None and store.engine.stream_position(plan.queue, plan.group) is not None:
        raise GroupMisused(
            f"group {plan.group!r} of queue {plan.queue!r} is read as a stream: process with another group"
        )


def find_function(target: str, folder: str) -> Callable[..., Any]:
    """The function that `module:function` names; modules of the folder where the job was started are found too."""
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
    """One long task: a worker of its own. A class, so that executors find it by name."""

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
        """Whether something may still come: what others hold in this group is handed out again if they die."""
        plan = self.plan
        patience = store.engine.policy(plan.queue).lease_seconds + 2 * plan.heartbeat_seconds
        due = store.engine.ready_in(plan.queue, plan.group)
        if due is None or due > patience:
            return False
        store.engine.wait(store.engine.seen(), min(due, LOOK_SECONDS))
        return True


class _Watching:
    """Asks a worker to stop when its job is over: nobody else can tell an executor."""

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
