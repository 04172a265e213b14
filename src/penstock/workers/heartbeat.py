"""Registration, heartbeats and lease renewal.

A sweep removes a worker that missed two heartbeats and releases its leases at once. A worker that was only slow or
suspended learns that it was removed, and registers again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.domain.errors import ConsumerRemoved, HandlerUnavailable, PenstockError, StoreError
from penstock.domain.lifecycle import Event
from penstock.domain.results import ConsumerInfo
from penstock.engines.contract import Engine
from penstock.workers.backoff import TRANSIENT, Backoff
from penstock.workers.lease_batch import RENEW_SHARE, LeaseBatch
from penstock.workers.outcome import make_settle
from penstock.workers.slots import Slots, WorkSlot
from penstock.workers.source import QueueSource, about_delivery

logger = logging.getLogger("penstock.worker")
# Share of the heartbeat interval after which one is sent: two missed intervals mean removal, and disks can be slow.
BEAT_SHARE = 0.6
SHORTEST_TICK_SECONDS = 0.02
LONGEST_TICK_SECONDS = 1.0


class LeaseKeeper:
    """A thread that sends heartbeats, renews leases, gives up handlers that exceed `max_seconds`, and releases messages
    that wait too long for a slot. It depends on no handler and no event loop."""

    def __init__(
        self,
        engine: Engine,
        consumer: str,
        sources: dict[QueueSource, Slots],
        heartbeat_seconds: float,
        fail: Callable[[BaseException], None],
        probe: Callable[[float], None] = lambda now: None,
    ) -> None:
        self._engine = engine
        self._consumer = consumer
        self._sources = sources
        self._heartbeat_seconds = heartbeat_seconds
        self._fail = fail
        self._probe = probe
        self.infos: dict[QueueSource, ConsumerInfo] = {}
        self._stuck: set[QueueSource] = set()
        self._has_failed = False
        self._beat_at = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-keeper", daemon=True)

    def register(self) -> None:
        for source in self._sources:
            self._register(source)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(LONGEST_TICK_SECONDS)

    def deregister(self) -> None:
        """Deregister the consumer in all queues, which releases what it still holds."""
        for source in self._sources:
            self._engine.deregister(source.name, source.group, self._consumer)

    def _register(self, source: QueueSource) -> None:
        self.infos[source] = self._engine.register(source.name, source.group, self._consumer, self._heartbeat_seconds)
        self._beat_at = time.monotonic() + self._heartbeat_seconds * BEAT_SHARE

    def _run(self) -> None:
        backoff = Backoff("heartbeats of this worker")
        pause = self._tick_seconds()
        while not self._stop.wait(pause):
            try:
                self._tick()
                backoff.succeeded()
                pause = self._tick_seconds()
            except TRANSIENT as error:
                pause = backoff.failed(error)
            except BaseException as error:
                self._fail(error)
                return

    def _tick_seconds(self) -> float:
        """The interval of the thread, short enough for every duration that it watches."""
        times = [self._heartbeat_seconds * BEAT_SHARE / 2, LONGEST_TICK_SECONDS]
        for source in self._sources:
            times.append(source.policy.lease_seconds * RENEW_SHARE / 2)
            if source.handler.max_seconds is not None:
                times.append(source.handler.max_seconds / 10)
        return max(SHORTEST_TICK_SECONDS, min(times))

    def _tick(self) -> None:
        # First what needs no store: handlers are given up even while the store is unavailable.
        self._probe(time.monotonic())
        for source, slots in self._sources.items():
            self._give_up_late(source, slots)
            source.give_back_overdue(time.monotonic())
        self._check_stuck()
        if time.monotonic() >= self._beat_at:
            self._beat()
        for source, slots in self._sources.items():
            self._renew(source, slots)

    # -- heartbeats ------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        """Send the heartbeats of all queues in one transaction, in the same order in all workers to avoid deadlocks."""
        sources = sorted(self._sources, key=lambda source: (source.name, source.group))
        beats = [partial(self._engine.heartbeat, source.name, source.group, self._consumer) for source in sources]
        for source, info in zip(sources, self._engine.together(beats), strict=True):
            if isinstance(info, ConsumerRemoved):
                self.register_again(source)
            elif isinstance(info, BaseException):
                raise info
            else:
                self.infos[source] = info
            source.policy = self._engine.policy(source.name)
        self._beat_at = time.monotonic() + self._heartbeat_seconds * BEAT_SHARE

    def register_again(self, source: QueueSource) -> None:
        logger.warning(
            "worker %s was removed from queue %s for its silence; it registers again",
            self._consumer,
            source.name,
            extra={"queue": source.name, "group": source.group, "consumer": self._consumer},
        )
        self._register(source)
        for batch in list(source.batches.values()):
            batch.renew_at = 0.0  # its leases were released: check at once

    # -- leases ----------------------------------------------------------------------------------------------------

    def _renew(self, source: QueueSource, slots: Slots) -> None:
        now = time.monotonic()
        due = [batch for batch in list(source.batches.values()) if now >= batch.renew_at]
        leases = [(batch.receipt.token, position) for batch in due for position in batch.open_positions()]
        if not leases:
            return
        lease_seconds = source.policy.lease_seconds
        ends = self._engine.extend(source.name, source.group, leases, lease_seconds)
        lost = {lease for lease, end in zip(leases, ends, strict=True) if end is None}
        for batch in due:
            batch.renewed(now, lease_seconds)
            positions = {position for token, position in lost if token == batch.receipt.token}
            if positions:
                self._lose(source, slots, batch, positions)

    def _lose(self, source: QueueSource, slots: Slots, batch: LeaseBatch, positions: set[int]) -> None:
        """Handle lost leases: other consumers may have these messages. Buffered ones are not started, running handlers
        are given up. The store refuses the settlements of those that have ended."""
        ended = {delivery.position for delivery in list(batch.acked)}
        ended |= {settle.position for settle in list(batch.others)}
        positions -= ended | batch.closed
        ids = [one.id for one in source.make(batch.receipt) if one.position in positions]
        batch.closed |= positions
        if ids:
            # Logged before handlers are given up, so that the log gives the reason first.
            source.note_lost(ids, "it ended or was taken over while this worker was away")
        for slot in slots.running():
            several = slot.several
            if several and all(one.token == batch.receipt.token and one.position in positions for one in several):
                slots.give_up(slot, "its lease was lost")
        if ids:
            source.touch(batch)

    # -- handlers that run too long --------------------------------------------------------------------------------

    def _give_up_late(self, source: QueueSource, slots: Slots) -> None:
        limit = source.handler.max_seconds
        if limit is None:
            return
        now = time.monotonic()
        for slot in slots.running():
            if slot.several and now - slot.began_at > limit:
                give_up(source, slots, slot, f"the handler ran longer than max_seconds ({limit:g})")

    def _check_stuck(self) -> None:
        """Stop receiving from a queue whose handlers are stuck. If all queues are stuck, the worker fails."""
        for source, slots in self._sources.items():
            if slots.is_stuck and source not in self._stuck:
                self._stuck.add(source)
                logger.error(
                    "queue %s: %d handlers that were given up still run; nothing is received before one has ended",
                    source.name,
                    slots.stuck,
                    extra={"queue": source.name, "group": source.group, "consumer": self._consumer},
                )
            elif not slots.is_stuck and source in self._stuck:
                self._stuck.discard(source)
                logger.warning("queue %s is received from again", source.name, extra={"queue": source.name})
                source.wake()
        if len(self._stuck) == len(self._sources) and not self._has_failed:
            self._has_failed = True
            self._fail(
                HandlerUnavailable(
                    "all queues of this worker have handlers that were given up and still run: restart it"
                )
            )


def give_up(source: QueueSource, slots: Slots, slot: WorkSlot, reason: str) -> None:
    """End a handler where possible, and nak its messages. An at_most_once message is rejected instead: its handler may
    have done its work already."""
    several = slots.give_up(slot, reason)
    event = Event.REJECT if source.policy.at_most_once else Event.NAK
    for delivery in several:
        logger.warning("%s: message %s", reason, delivery.id, extra=about_delivery(delivery))
        source.finish(delivery, make_settle(event, delivery, reason), None, time.monotonic() - slot.began_at)


def log_failure(action: Callable[[], Any], doing: str) -> bool:
    """Log a failure at shutdown instead of raising it: leases end by themselves. Returns whether the action
    succeeded."""
    try:
        action()
    except (PenstockError, StoreError) as error:
        logger.warning("%s: %s", doing, error)
        return False
    return True
