"""Staying alive: registration, heartbeats, and leases that are kept while handlers run.

A worker that dies is found out by its silence: a sweep of the living removes it after two missed heartbeats, and what
it held is free at once. A worker that was only slow, or stopped for a while, learns that it was removed, and registers
again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock.domain.errors import ConsumerRemoved, PenstockError, StoreError
from penstock.domain.lifecycle import Event
from penstock.domain.observations import ConsumerInfo
from penstock.engines.contract import Engine
from penstock.workers.outcome import make_settle
from penstock.workers.patience import PASSING, Patience
from penstock.workers.slots import Hand, Slots
from penstock.workers.source import Source, about_delivery
from penstock.workers.take import RENEW_SHARE, AnyHeld, Take

logger = logging.getLogger("penstock.worker")
# Removal comes after two missed heartbeats: beating this much more often leaves room for a slow disk.
BEAT_SHARE = 0.6
SHORTEST_TICK_SECONDS = 0.02
LONGEST_TICK_SECONDS = 1.0


class Keeper:
    """A thread that says "I am alive", renews leases before they end, and gives up handlers that run too long."""

    def __init__(
        self,
        engine: Engine,
        consumer: str,
        sources: dict[Source, Slots],
        heartbeat_seconds: float,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._engine = engine
        self._consumer = consumer
        self._sources = sources
        self._heartbeat_seconds = heartbeat_seconds
        self._fail = fail
        self.infos: dict[Source, ConsumerInfo] = {}
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
        """Leave, and let go of whatever is still held under this name."""
        for source in self._sources:
            self._engine.deregister(source.name, source.group, self._consumer)

    def _register(self, source: Source) -> None:
        self.infos[source] = self._engine.register(source.name, source.group, self._consumer, self._heartbeat_seconds)
        self._beat_at = time.monotonic() + self._heartbeat_seconds * BEAT_SHARE

    def _run(self) -> None:
        patience = Patience("heartbeats of this worker")
        pause = self._tick_seconds()
        while not self._stop.wait(pause):
            try:
                self._tick()
                patience.worked()
                pause = self._tick_seconds()
            except PASSING as error:
                pause = patience.failed(error)
            except BaseException as error:
                self._fail(error)
                return

    def _tick_seconds(self) -> float:
        """Often enough for the shortest of all times that it watches."""
        times = [self._heartbeat_seconds * BEAT_SHARE / 2, LONGEST_TICK_SECONDS]
        for source in self._sources:
            times.append(source.policy.lease_seconds * RENEW_SHARE / 2)
            if source.handler.max_seconds is not None:
                times.append(source.handler.max_seconds / 10)
        return max(SHORTEST_TICK_SECONDS, min(times))

    def _tick(self) -> None:
        # First what needs no store: a handler that runs too long is given up even while the store is away.
        for source, slots in self._sources.items():
            self._give_up_late(source, slots)
        if time.monotonic() >= self._beat_at:
            self._beat()
        for source, slots in self._sources.items():
            self._renew(source, slots)

    # -- heartbeats ------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        for source in self._sources:
            try:
                self.infos[source] = self._engine.heartbeat(source.name, source.group, self._consumer)
            except ConsumerRemoved:
                logger.warning(
                    "worker %s was removed from queue %s for its silence; it registers again",
                    self._consumer,
                    source.name,
                    extra={"queue": source.name, "group": source.group, "consumer": self._consumer},
                )
                self._register(source)
                for take in list(source.takes.values()):
                    take.renew_at = 0.0  # the leases went with the place: find out at once
            source.policy = self._engine.policy(source.name)
        self._beat_at = time.monotonic() + self._heartbeat_seconds * BEAT_SHARE

    # -- leases ----------------------------------------------------------------------------------------------------

    def _renew(self, source: Source, slots: Slots) -> None:
        now = time.monotonic()
        due = [take for take in list(source.takes.values()) if now >= take.renew_at]
        leases = [(take.receipt.token, position) for take in due for position in take.open_positions()]
        if not leases:
            return
        lease_seconds = source.policy.lease_seconds
        ends = self._engine.extend(source.name, source.group, leases, lease_seconds)
        lost = {lease for lease, end in zip(leases, ends, strict=True) if end is None}
        for take in due:
            take.renewed(now, lease_seconds)
            positions = {position for token, position in lost if token == take.receipt.token}
            if positions:
                self._lose(source, slots, take, positions)

    def _lose(self, source: Source, slots: Slots, take: Take, positions: set[int]) -> None:
        """Others may have these messages now: what has not begun does not begin, and what runs is ended if it can be.
        What has ended and waits to be settled will be refused by the store."""
        ended = {delivery.position for delivery in list(take.acked)} | {settle.position for settle in list(take.others)}
        positions -= ended | take.closed
        source.ready.remove(positions)
        ids = {row_id.position: row_id.id for row_id in _deliveries(source, take) if row_id.position in positions}
        take.closed |= positions
        if ids:
            # Told before anything is ended: a log should give the reason first.
            source.note_lost(list(ids.values()), "it ended or was taken over while this worker was away")
        for hand in slots.running():
            several = hand.several
            if several and all(one.token == take.receipt.token and one.position in positions for one in several):
                slots.give_up(hand, "its lease was lost")
        if ids:
            source.touch(take)

    # -- handlers that run too long --------------------------------------------------------------------------------

    def _give_up_late(self, source: Source, slots: Slots) -> None:
        limit = source.handler.max_seconds
        if limit is None:
            return
        now = time.monotonic()
        for hand in slots.running():
            if hand.several and now - hand.began_at > limit:
                give_up(source, slots, hand, f"the handler ran longer than max_seconds ({limit:g})")


def give_up(source: Source, slots: Slots, hand: Hand, reason: str) -> None:
    """End a handler where possible, and say that its messages are to be tried again. An at_most_once message is not:
    its handler may have done its work already."""
    several = slots.give_up(hand, reason)
    event = Event.REJECT if source.policy.at_most_once else Event.NAK
    for delivery in several:
        logger.warning("%s: message %s", reason, delivery.id, extra=about_delivery(delivery))
        source.finish(delivery, make_settle(event, delivery, reason), None, time.monotonic() - hand.began_at)


def _deliveries(source: Source, take: Take) -> list[AnyHeld]:
    return source.make(take.receipt)


def quietly(action: Callable[[], Any], doing: str) -> bool:
    """For the end of a worker: what fails now heals by itself when leases end, but it is told."""
    try:
        action()
    except (PenstockError, StoreError) as error:
        logger.warning("%s: %s", doing, error)
        return False
    return True
