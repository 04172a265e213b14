"""Two processes on one SQLite store, one with its clock an hour ahead or behind.

The clock of a SQLite store is that of the process that makes the call. A message becomes ready, and a lease ends, when
the first process finds it due on its own clock: the one that is behind may then receive it early by its own. Tokens,
attempts and counts do not depend on clocks.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

import penstock
from penstock import AuditEntry, Delivery, Event, LeaseLost, Outgoing, Queue, Store
from penstock.domain.lifecycle import LIVE, is_legal
from tests.conformance.clock import Clock

HOUR = 3600
DELAY_SECONDS, TTL_SECONDS = 20, 60
POLICY: dict[str, Any] = {"max_retries": 3, "backoff_base_seconds": 1, "backoff_jitter_seconds": 0, "lease_seconds": 30}
STEPS = 150


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
@pytest.mark.parametrize("ahead_seconds", [HOUR, -HOUR])
def test_laws_hold_when_the_clock_of_one_process_is_an_hour_off(
    ahead_seconds: int, delivery: Any, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with two_stores(f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db", ahead_seconds) as (stores, clocks):
        for store in stores:
            store.queue("orders", delivery=delivery, **POLICY)
        walk = SkewedWalk(stores, clocks, seed)
        for _ in range(STEPS):
            walk.step()
        walk.drain()
        walk.judge()


@contextmanager
def two_stores(url: str, ahead_seconds: int) -> Iterator[tuple[list[Store], list[Clock]]]:
    clocks = [Clock(), Clock()]
    clocks[1].advance(seconds=ahead_seconds)
    with ExitStack() as stack:
        stores = [
            stack.enter_context(penstock.connect(url, clock=clock, random=random.Random(7).random)) for clock in clocks
        ]
        yield stores, clocks


class SkewedWalk:
    """Random calls through either process, and what must hold of each answer."""

    def __init__(self, stores: list[Store], clocks: list[Clock], seed: int) -> None:
        self.stores, self.clocks = stores, clocks
        self.random = random.Random(seed)
        self.queues: list[Queue] = [store.queue("orders") for store in stores]
        self.due_at: dict[str, datetime] = {}
        self.held: list[Delivery] = []
        self.newest: dict[str, int] = {}
        self.ended: set[str] = set()
        # The furthest that any clock was when a call was made: nothing is due that this clock does not find due.
        self.latest = min(clock.now for clock in clocks)

    def step(self) -> None:
        self._pass(self.random.choice([0.001, 1, 10, 40]))
        side = self.random.randrange(2)
        self.latest = max(self.latest, self.clocks[side].now)
        moves = [self.send, self.send, self.receive, self.receive, self.receive, self.settle, self.settle, self.sweep]
        self.random.choice(moves)(side)

    def _pass(self, seconds: float) -> None:
        for clock in self.clocks:
            clock.advance(seconds=seconds)

    def send(self, side: int) -> None:
        options: dict[str, Any] = self.random.choice(
            [{}, {}, {"delay_seconds": DELAY_SECONDS}, {"ttl_seconds": TTL_SECONDS}]
        )
        due_at = self.clocks[side].now + timedelta(seconds=options.get("delay_seconds", 0))
        [message_id] = self.queues[side].send_many([Outgoing(payload=len(self.due_at), **options)])
        self.due_at[message_id] = due_at

    def receive(self, side: int) -> None:
        for delivery in self.queues[side].receive(limit=3):
            assert delivery.id not in self.ended, "handed out after its end"
            assert self.newest.get(delivery.id, 0) < delivery.token, "a token is given out twice, or falls"
            self.newest[delivery.id] = delivery.token
            assert self.due_at[delivery.id] <= self.latest, "early"
            assert delivery.expires_at is None or delivery.expires_at > self.clocks[side].now, "late"
            self.held.append(delivery)

    def settle(self, side: int) -> None:
        if not self.held:
            return
        delivery = self.held.pop(self.random.randrange(len(self.held)))
        verb = self.random.choice(["ack", "ack", "nak", "reject", "reschedule"])
        try:
            delivery.nak(delay_seconds=5) if verb == "nak" else getattr(delivery, verb)()
        except LeaseLost:
            return
        assert self.newest[delivery.id] == delivery.token, "a stale token settled"
        if verb in ("ack", "reject"):
            self.ended.add(delivery.id)

    def sweep(self, side: int) -> None:
        self.stores[side].sweep()

    def drain(self) -> None:
        for turn in range(24):
            self._pass(600)
            self.latest = max(clock.now for clock in self.clocks)
            self.sweep(turn % 2)
            self.receive(turn % 2)
            self._ack_all()

    def _ack_all(self) -> None:
        held, self.held = self.held, []
        for delivery in held:
            try:
                delivery.ack()
            except LeaseLost:
                continue
            self.ended.add(delivery.id)

    def judge(self) -> None:
        queue = self.queues[0]
        letters = [letter.id for letter in queue.dead_letters(limit=1000)]
        assert len(letters) == len(set(letters))
        for message_id in self.due_at:
            assert (message_id in self.ended) or (message_id in letters), f"{message_id} did not end"
            trail = queue.audit(message_id)
            state, attempt = None, 0
            for entry in trail:
                assert is_legal(state, entry.event, entry.state)
                state, attempt = entry.state, self._checked_attempt(entry, attempt)
            assert state not in LIVE
        assert queue.stats("default").total == len(self.due_at)
        assert all(check.level != "error" for check in self.stores[0].doctor())

    def _checked_attempt(self, entry: AuditEntry, attempt: int) -> int:
        if entry.event is Event.RECEIVE:
            assert entry.attempt == attempt + 1, f"attempt {entry.attempt} after {attempt}"
            return attempt + 1
        return 0 if entry.event is Event.RESCHEDULE else attempt
