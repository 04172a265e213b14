"""Random lives of a queue, the same in every run: whatever happens, the laws hold.

The state machine in `tests/model` compares every answer with a model; here only the laws are checked, on every kind of
queue and with verbs that the model leaves out.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from penstock import Ack, Delivery, LeaseLost, Nak, Outgoing, Queue, Refused, Reject, Reschedule, Store
from tests.conformance.assertions import assert_books_balance, assert_trail_is_legal
from tests.conformance.clock import Clock
from tests.conformance.conftest import POLICY

GROUPS = ("default", "billing")
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "at most once": {"delivery": "at_most_once"},
    "sharded": {"shards": 3},
    "ordered": {"shards": 3, "ordered": True},
    "short-lived": {"ttl_seconds": 60, "delay_seconds": 3},
    "brittle": {"max_retries": 0},
}


class Life:
    """Makes random calls, and keeps track of sends and leases."""

    def __init__(self, queue: Queue, clock: Clock, seed: int) -> None:
        self.queue = queue
        self.store: Store = queue.store
        self.clock = clock
        self.chance = random.Random(seed)
        self.sent: list[str] = []
        self.holders: list[Delivery] = []
        self.moves = [
            *[self.send] * 3,
            *[self.receive] * 4,
            *[self.settle] * 4,
            self.ack_many,
            self.extend,
            *[self.pass_time] * 2,
            self.batch,
            self.redrive,
            self.leave,
            self.read_again,
        ]

    def live(self, steps: int) -> None:
        for _ in range(steps):
            self.chance.choice(self.moves)()

    def send(self) -> None:
        items = []
        for _ in range(self.chance.randrange(1, 6)):
            options: dict[str, Any] = self.chance.choice(
                [
                    {},
                    {"delay_seconds": 7},
                    {"ttl_seconds": 29},
                    {"priority": 2},
                    {"deadline_at": self.clock.now + timedelta(seconds=self.chance.randrange(50))},
                ]
            )
            items.append(Outgoing(payload=len(self.sent), key=self.chance.choice("abcdef"), **options))
        self.sent += self.queue.send_many(items)

    def receive(self) -> None:
        group, consumer = self.chance.choice(GROUPS), self.chance.choice(["zoe", "adam"])
        for delivery in self.queue.receive(limit=self.chance.randrange(1, 9), group=group, consumer=consumer):
            self.check_nobody_else_holds(delivery)
            self.holders.append(delivery)

    def check_nobody_else_holds(self, delivery: Delivery) -> None:
        """Law 3: at most one live lease per group and message."""
        for other in self.holders:
            if (other.group, other.id) == (delivery.group, delivery.id):
                with pytest.raises(LeaseLost):
                    other.extend(1)

    def settle(self) -> None:
        taken = [self.take() for _ in range(self.chance.randrange(4)) if self.holders]
        make = [
            Ack,
            lambda one: Nak(one, "busy", self.chance.randrange(9)),
            Nak,
            Reject,
            lambda one: Reschedule(one, 5),
        ]
        self.queue.settle([self.chance.choice(make)(delivery) for delivery in taken])  # type: ignore[operator]

    def take(self) -> Delivery:
        return self.holders.pop(self.chance.randrange(len(self.holders)))

    def ack_many(self) -> None:
        taken, self.holders = self.holders, []
        try:
            self.queue.ack_many(taken)
        except LeaseLost:
            assert taken

    def extend(self) -> None:
        if self.holders:
            try:
                self.chance.choice(self.holders).extend(41)
            except LeaseLost:
                return

    def pass_time(self) -> None:
        self.clock.advance(seconds=self.chance.choice([1, 5, 40]))
        if self.chance.random() < 0.7:
            self.store.sweep()

    def batch(self) -> None:
        batch = self.queue.batch(self.chance.choice(["first", "second"]))
        try:
            self.sent.append(batch.send(len(self.sent)))
            self.sent += batch.send_many([Outgoing(payload=0, delay_seconds=4)] * self.chance.randrange(3))
        except Refused:
            return
        if self.chance.random() < 0.7:
            batch.start()
        if self.chance.random() < 0.3:
            batch.cancel()

    def redrive(self) -> None:
        if self.sent:
            self.queue.redrive(limit=2)
            self.queue.purge(limit=1)

    def leave(self) -> None:
        self.queue.register(self.chance.choice(["zoe", "adam"])).deregister()

    def read_again(self) -> None:
        if self.chance.random() < 0.3:
            self.queue.receive(group="billing")
            self.queue.seek("billing", "start")

    def check(self) -> None:
        for group in GROUPS:
            assert_books_balance(self.queue, len(self.sent), group)
            for message_id in self.sent:
                assert_trail_is_legal(self.queue, message_id, group)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_the_books_balance_and_trails_are_legal_after_a_random_life(
    store: Store, clock: Clock, kind: str, seed: int
) -> None:
    queue = store.queue("orders", **{**POLICY, **KINDS[kind]})
    queue.receive(group="billing")
    life = Life(queue, clock, seed)
    life.live(120)
    assert len(life.sent) > 30
    life.check()
    assert store.repair(dry_run=True) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_queue_can_always_be_worked_off(store: Store, clock: Clock, kind: str) -> None:
    queue = store.queue("orders", **{**POLICY, **KINDS[kind]})
    queue.receive(group="billing")
    life = Life(queue, clock, seed=7)
    life.live(60)
    for name in ("first", "second"):
        queue.batch(name).start()
    for _ in range(200):
        clock.advance(seconds=41)
        store.sweep()
        for group in GROUPS:
            queue.ack_many(queue.receive(limit=1_000, group=group))
    for group in GROUPS:
        stats = assert_books_balance(queue, len(life.sent), group)
        assert stats.held + stats.available + stats.redo + stats.in_progress == 0
    assert not [info for info in queue.batches() if info.state not in ("finished", "cancelled")]
    assert store.repair(dry_run=True) == []
