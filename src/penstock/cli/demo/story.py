"""Runs the demo: starts its processes, kills one, and waits for the messages to end."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.process import BaseProcess
from typing import Any

import msgspec

from penstock.cli.demo import consumers, plan, producers
from penstock.cli.demo.consumers import Tally
from penstock.cli.demo.processes import start_without_interrupts
from penstock.client.connection import connect
from penstock.client.store import Store
from penstock.domain.errors import DuplicateAddress
from penstock.domain.results import GroupStats
from penstock.domain.timestamps import to_time

PATIENCE_SECONDS = 40
# Interval of sweeps and of redrawing; the processes themselves wait for signals.
TICK_SECONDS = 0.1
CREW = {
    "clerk-1": [(plan.ORDERS, plan.DEFAULT), (plan.EMAILS, plan.DEFAULT), (plan.REPORTS, plan.DEFAULT)],
    "clerk-2": [(plan.REPORTS, plan.DEFAULT), (plan.ORDERS, plan.DEFAULT), (plan.EMAILS, plan.DEFAULT)],
    "analyst": [(plan.ORDERS, plan.ANALYTICS)],
}

Stats = dict[tuple[str, str], GroupStats]
Progress = Callable[[str], None]
Draw = Callable[[Stats], None]


class Report(msgspec.Struct):
    """The part of the result that is not in the store."""

    seconds: float = 0
    drained: bool = False
    crashed: list[str] = []
    killed_ids: list[str] = []
    refused_addresses: int = 0
    waited: str = ""
    tallies: dict[str, Tally] = {}


class Story:
    def __init__(self, url: str, log: Progress, draw: Draw) -> None:
        self.url = url
        self.log = log
        self.draw = draw
        self.report = Report()
        self._spawn = multiprocessing.get_context("spawn")
        self._go = self._spawn.Event()
        self._stop = self._spawn.Event()
        self._processes: dict[str, SpawnProcess] = {}
        self._pipes: dict[str, Connection] = {}
        self._started_at = time.monotonic()

    def run(self) -> Report:
        try:
            with connect(self.url) as store:
                self._prepare(store)
                self._send(store)
                self._kill_one()
                self._let_offers_expire(store)
                self._consume(store)
                self._finish(store)
        finally:
            self._end_all()
        self.report.seconds = time.monotonic() - self._started_at
        return self.report

    # -- the steps -------------------------------------------------------------------------------------------------

    def _prepare(self, store: Store) -> None:
        for queue in plan.QUEUES:
            store.queue(queue, **plan.POLICY)
        nightly = store.queue(plan.REPORTS).batch(plan.BATCH)
        nightly.send_many({"page": number} for number in range(plan.BATCH_COUNT))
        nightly.set_end(plan.END)
        self.log(f"A batch of {plan.BATCH_COUNT} reports waits for its start; an end message will follow its last one.")
        tick = to_time(store.engine.now()) + timedelta(seconds=3)
        store.schedule(plan.SCHEDULE, f"{tick:%S %M %H %d %m} *", plan.REPORTS, plan.SCHEDULED, catch_up="one")
        self.log(f"A schedule will send one more report at {tick:%H:%M:%S} UTC.")

    def _send(self, store: Store) -> None:
        emails = store.queue(plan.EMAILS)
        emails.send_many(plan.offers())
        self.log(f"{plan.OFFER_COUNT} emails are worthless after {plan.OFFER_TTL_SECONDS} s, and nobody reads yet.")
        emails.send_many(plan.digests())
        for digest in plan.digests():
            try:
                emails.send(digest.payload, address=digest.address)
            except DuplicateAddress:
                self.report.refused_addresses += 1
        self.log(f"{plan.DIGEST_COUNT} emails have an address; sending to these addresses again is refused.")
        for producer in range(plan.ORDER_PRODUCERS):
            self._start(f"shop-{producer + 1}", producers.send_orders, self.url, producer)
        self._start("mailer", producers.send_emails, self.url)
        self.log(
            f"{plan.ORDER_PRODUCERS + 1} processes send {plan.ORDER_COUNT:,} orders in three priorities "
            f"and {plan.EMAIL_COUNT} emails, some with a delay."
        )

    def _kill_one(self) -> None:
        """Kill a consumer that holds leases. The others are started meanwhile and wait for `go`."""
        victim = self._start(plan.VICTIM, consumers.hold_and_hang, self.url, piped=True)
        for name, readers in CREW.items():
            self._start(name, consumers.consume, self.url, name, readers, self._go, self._stop, piped=True)
        pipe = self._pipes.pop(plan.VICTIM)
        if pipe.poll(PATIENCE_SECONDS):
            self.report.killed_ids = pipe.recv()
        victim.kill()
        victim.join()
        del self._processes[plan.VICTIM]
        self.log(f"A consumer took {len(self.report.killed_ids)} orders and was killed: its leases must lapse.")

    def _let_offers_expire(self, store: Store) -> None:
        """Wait until the offers have expired, before anyone receives emails."""
        self._until(store, lambda stats: stats[plan.EMAILS, plan.DEFAULT].outcomes.get("expired") == plan.OFFER_COUNT)

    def _consume(self, store: Store) -> None:
        store.queue(plan.REPORTS).batch(plan.BATCH).start()
        self._go.set()
        self.log(f"{len(CREW)} consumers work on {len(plan.READERS)} groups: they succeed, fail, try again and reject.")
        self.report.drained = self._until(store, self._is_drained)

    def _finish(self, store: Store) -> None:
        if self.report.drained:
            self.report.waited = str(store.queue(plan.EMAILS).wait("digest-0", timeout_seconds=1))
            self.log("Everything has ended.")
        self._stop.set()
        for name, pipe in self._pipes.items():
            if pipe.poll(PATIENCE_SECONDS):
                self.report.tallies[name] = pipe.recv()
        for process in self._processes.values():
            process.join(PATIENCE_SECONDS)
        self.report.crashed = [name for name, process in self._processes.items() if process.exitcode != 0]

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _until(self, store: Store, condition: Callable[[Stats], bool]) -> bool:
        """Sweep until the condition holds; False after PATIENCE_SECONDS or when a process has crashed."""
        ends = time.monotonic() + PATIENCE_SECONDS
        while True:
            store.sweep()
            stats = read_stats(store)
            self.draw(stats)
            if condition(stats):
                return True
            if time.monotonic() > ends or any(process.exitcode for process in self._processes.values()):
                return False
            time.sleep(TICK_SECONDS)

    def _is_drained(self, stats: Stats) -> bool:
        expected = plan.expected_outcomes()
        ended = {reader: sum(one.outcomes.values()) for reader, one in stats.items()}
        return all(ended.get(reader, 0) >= sum(outcomes.values()) for reader, outcomes in expected.items())

    # -- processes -------------------------------------------------------------------------------------------------

    def _start(self, name: str, run: Callable[..., None], *arguments: Any, piped: bool = False) -> SpawnProcess:
        if piped:
            self._pipes[name], theirs = self._spawn.Pipe()
            arguments = (*arguments, theirs)
        process = self._spawn.Process(target=run, args=arguments, name=f"penstock-demo-{name}", daemon=True)
        start_without_interrupts(process)
        self._processes[name] = process
        return process

    def _end_all(self) -> None:
        """Kill the processes that are left, however the demo ends."""
        self._stop.set()
        left: list[BaseProcess] = [process for process in self._processes.values() if process.is_alive()]
        for process in left:
            process.kill()
            process.join()


def read_stats(store: Store) -> Stats:
    return {(queue, group): stats for queue in plan.QUEUES for group, stats in store.queue(queue).stats().items()}
