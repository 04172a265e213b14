"""A store: one database that holds queues."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Unpack

from penstock.client.consumer import Consumer
from penstock.client.consumer_name import unique_name
from penstock.client.executor import Executor
from penstock.client.producer import Producer
from penstock.client.queue import Queue
from penstock.domain.errors import InvalidInput
from penstock.domain.message import Outgoing, draft
from penstock.domain.policy import PolicyFields, check_changes
from penstock.domain.recurrence import CatchUp, Schedule, check_catch_up, check_cron
from penstock.domain.results import Check, ConsumerInfo, ProcessInfo, QueueInfo, Repair, SweepReport, processes_of
from penstock.domain.validation import check_name, shown
from penstock.engines.contract import Engine
from penstock.engines.flaws import Choices


class Store:
    """Made by `penstock.connect(url)`. May be shared by threads, and used after a fork."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        # All calls to the engine go through it, also those of the servers.
        self.executor = Executor(engine)

    def queue(self, name: str, **policy: Unpack[PolicyFields]) -> Queue:
        """Get a queue, which its first use creates. The given policy fields are set; the others keep their value."""
        queue = Queue(self, name)
        changes = check_changes(policy)
        if changes:
            self.executor.write(lambda: self.engine.declare(queue.name, changes))
        return queue

    def producer(self, queue: str, batch_size: int = 1, linger_seconds: float = 0.02) -> Producer:
        """A producer that sends when it has `batch_size` messages; by default it sends each at once."""
        return Producer(Queue(self, queue), batch_size, linger_seconds)

    def consumer(
        self,
        queue: str,
        batch_size: int = 10,
        *,
        name: str | None = None,
        group: str | None = None,
        heartbeat_seconds: float = 5,
        max_missed_heartbeats: int = 1,
        heartbeats_per_sweep: int = 10,
    ) -> Consumer:
        """Register a consumer of a queue; without a name each call registers another one. `batch_size` is the default
        limit of its `receive`."""
        return Queue(self, queue).register(
            unique_name() if name is None else name,
            group=group,
            heartbeat_seconds=heartbeat_seconds,
            max_missed_heartbeats=max_missed_heartbeats,
            heartbeats_per_sweep=heartbeats_per_sweep,
            batch_size=batch_size,
        )

    def queues(self) -> list[QueueInfo]:
        return self.executor.read(self.engine.queues)

    def consumers(self) -> list[ConsumerInfo]:
        """Registered consumers of all queues, in birth order."""
        return self.executor.read(self.engine.consumers)

    def processes(self) -> list[ProcessInfo]:
        """Registered consumers grouped by name, with all their queues."""
        registered = self.executor.read(self.engine.consumers)
        return processes_of(registered)

    def schedule(
        self,
        name: str,
        cron: str,
        queue: str,
        payload: Any,
        *,
        timezone: str = "UTC",
        catch_up: CatchUp = "skip",
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        ttl_seconds: float | None = None,
        key: str | None = None,
        content_type: str | None = None,
    ) -> Schedule:
        """Send a message at every tick of a cron rule, exactly one however many processes sweep.

        Missed ticks (nobody swept for a while) are left out with catch_up "skip", sent as one with "one", or sent
        each with "all".
        """
        check_name("schedule", name)
        check_name("queue", queue)
        check_cron(cron, timezone)
        mode = check_catch_up(catch_up)
        message = draft(
            Outgoing(
                payload=payload,
                priority=priority,
                headers=headers,
                ttl_seconds=ttl_seconds,
                key=key,
                content_type=content_type,
                created_by=name,
            )
        )
        return self.executor.write(lambda: self.engine.schedule(name, cron, timezone, queue, message, mode))

    def schedules(self) -> list[Schedule]:
        return self.executor.read(self.engine.schedules)

    def pause_schedule(self, name: str) -> Schedule:
        """Ticks missed while paused are not sent."""
        return self.executor.write(lambda: self.engine.schedule_pause(check_name("schedule", name), True))

    def resume_schedule(self, name: str) -> Schedule:
        return self.executor.write(lambda: self.engine.schedule_pause(check_name("schedule", name), False))

    def run_schedule(self, name: str) -> str:
        """Send the schedule's message now, even while it is paused, and return its id; its ticks do not change."""
        return self.executor.write(lambda: self.engine.schedule_run(check_name("schedule", name)))

    def unschedule(self, name: str) -> None:
        return self.executor.write(lambda: self.engine.unschedule(check_name("schedule", name)))

    def sweep(self) -> SweepReport:
        """One maintenance pass: reclaim lapsed leases, promote due messages, expire late ones, fire schedules, trim."""
        return self.executor.write(self.engine.sweep, alone=True)

    def migrate(self) -> list[str]:
        """Create or upgrade the schema; returns the names of the steps."""
        return self.executor.write(self.engine.migrate, alone=True)

    def doctor(self) -> list[Check]:
        """Check the store; returns the findings, with advice."""
        return self.executor.read(self.engine.doctor)

    def repair(self, *, dry_run: bool = False, batches: str | None = None, terminate: bool = False) -> list[Repair]:
        """Repair damage left by earlier versions or faults; returns what was done. `batches` is what to do with batches
        that were never started: "start" or "cancel". `terminate` ends database sessions that hold a lock by mistake."""
        if batches not in (None, "start", "cancel"):
            raise InvalidInput(f"batches must be start or cancel, not {shown(batches)}")
        choices = Choices(batches, terminate)
        return self.executor.write(lambda: self.engine.repair(dry_run, choices), alone=True)

    def close(self) -> None:
        self.executor.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
