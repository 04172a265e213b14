"""A store: one database that holds queues."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from penstock.client.calling import Calls
from penstock.client.queue import Queue
from penstock.domain.errors import InvalidInput
from penstock.domain.message import Outgoing, draft
from penstock.domain.names import check_name, shown
from penstock.domain.observations import Check, ConsumerInfo, QueueInfo, Repair, SweepReport
from penstock.domain.policy import check_changes
from penstock.domain.recurrence import CatchUp, Schedule, check_catch_up, check_cron
from penstock.engines.flaws import Choices


class Store(Calls):
    """Made by `penstock.connect(url)`. May be shared by threads, and used after a fork."""

    def queue(self, name: str, **policy: Any) -> Queue:
        """The queue of that name. Given policy fields are set, the others keep their value; a queue is made by its
        first use."""
        queue = Queue(self, name)
        changes = check_changes(policy)
        if changes:
            self._run(lambda: self.engine.declare(queue.name, changes))
        return queue

    def queues(self) -> list[QueueInfo]:
        return self._read(self.engine.queues)

    def consumers(self) -> list[ConsumerInfo]:
        """Registered consumers of all queues, in birth order."""
        return self._read(self.engine.consumers)

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
        return self._run(lambda: self.engine.schedule(name, cron, timezone, queue, message, mode))

    def schedules(self) -> list[Schedule]:
        return self._read(self.engine.schedules)

    def pause_schedule(self, name: str) -> Schedule:
        """Ticks missed while paused are not sent."""
        return self._run(lambda: self.engine.schedule_pause(check_name("schedule", name), True))

    def resume_schedule(self, name: str) -> Schedule:
        return self._run(lambda: self.engine.schedule_pause(check_name("schedule", name), False))

    def unschedule(self, name: str) -> None:
        return self._run(lambda: self.engine.unschedule(check_name("schedule", name)))

    def sweep(self) -> SweepReport:
        """One maintenance pass: reclaim lapsed leases, promote due messages, expire late ones, fire schedules, trim."""
        return self._run_alone(self.engine.sweep)

    def migrate(self) -> list[str]:
        """Bring the schema to this version; names the steps taken."""
        return self._run_alone(self.engine.migrate)

    def doctor(self) -> list[Check]:
        """What is wrong with the store, and what to do about it."""
        return self._read(self.engine.doctor)

    def repair(self, *, dry_run: bool = False, batches: str | None = None, terminate: bool = False) -> list[Repair]:
        """Mend what earlier versions or faults left behind, and say what was done. `batches` says what becomes of
        batches that nobody started: "start" or "cancel". With `terminate` sessions are ended that keep a lock."""
        if batches not in (None, "start", "cancel"):
            raise InvalidInput(f"batches must be start or cancel, not {shown(batches)}")
        choices = Choices(batches, terminate)
        return self._run_alone(lambda: self.engine.repair(dry_run, choices))

    def close(self) -> None:
        self._close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
