"""The same random walk over two stores, and what must be equal after each step.

Every move is drawn once and made on both stores. Ids and positions are the engines' own, so messages are named by their
payloads.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from penstock import Ack, Delivery, LeaseLost, Nak, Outgoing, PenstockError, Queue, Reject, Reschedule, Store
from tests.conformance.clock import Clock

GROUPS = ("default", "billing")
CONSUMERS = ("zoe", "adam")
BATCHES = ("first", "second")


class Side:
    """One store of the two: its queue, and the deliveries and ids by payload."""

    def __init__(self, store: Store, policy: dict[str, Any]) -> None:
        self.store = store
        self.queue: Queue = store.queue("orders", **policy)
        # Batches of the queue have members here too.
        self.elsewhere: Queue = store.queue("elsewhere", **policy)
        self.ids: dict[Any, str] = {}
        self.deliveries: dict[tuple[str, Any, int], Delivery] = {}
        # Registered, because a consumer that is not begins at a random shard; and never missed, because one that was
        # removed receives nothing.
        self.consumers = [
            queue.register(name, group=group, heartbeat_seconds=3_600)
            for queue in (self.queue, self.elsewhere)
            for group in GROUPS
            for name in CONSUMERS
        ]


class Walk:
    """Draws calls from a seed and makes each of them on both sides."""

    def __init__(self, left: Side, right: Side, clock: Clock, seed: int) -> None:
        self.sides = (left, right)
        # With shards, messages that a receive makes ready have another order on PostgreSQL (docs/postgres.md).
        self.is_sharded = left.queue.policy().shards > 1
        self.clock = clock
        self.chance = random.Random(seed)
        self.sent = 0
        self.held: list[tuple[str, Any, int]] = []
        self.log: list[str] = []
        self.moves = [
            *[self.send] * 4,
            *[self.receive] * 5,
            *[self.settle] * 4,
            *[self.pass_time] * 3,
            *[self.batch_send] * 2,
            *[self.work_elsewhere] * 2,
            self.batch_start,
            self.batch_cancel,
            self.seek,
            self.redrive,
            self.extend,
        ]

    def live(self, steps: int) -> None:
        for _ in range(steps):
            self.chance.choice(self.moves)()
            self.compare()

    # -- moves -----------------------------------------------------------------------------------------------------

    def send(self) -> None:
        items = self._several(self.chance.randrange(1, 5))
        self.log.append(f"send {[(item.payload, item.key, item.priority) for item in items]}")
        for side in self.sides:
            for item, message_id in zip(items, side.queue.send_many(items), strict=True):
                side.ids[item.payload] = message_id

    def _several(self, count: int) -> list[Outgoing]:
        """What one call sends over several shards has its positions in another order on PostgreSQL, and so have its
        retries (docs/postgres.md): of one key there."""
        keys = self.chance.choice("abcdef") if self.is_sharded else "abcdef"
        return [self._outgoing(keys) for _ in range(count)]

    def _outgoing(self, keys: str) -> Outgoing:
        self.sent += 1
        options: dict[str, Any] = self.chance.choice(
            [
                {},
                {},
                {"delay_seconds": 7},
                {"ttl_seconds": 29},
                {"priority": 2},
                {"deadline_at": self.clock.now + timedelta(seconds=self.chance.randrange(50))},
            ]
        )
        return Outgoing(payload=self.sent, key=self.chance.choice(keys), **options)

    def receive(self) -> None:
        options: dict[str, Any] = {
            "limit": self.chance.randrange(1, 4),
            "group": self.chance.choice(GROUPS),
            "consumer": self.chance.choice(CONSUMERS),
        }
        self.log.append(f"receive {options}")
        got = [side.queue.receive(**options) for side in self.sides]
        names = [[(one.json(), one.attempt) for one in deliveries] for deliveries in got]
        self._equal("receive", names)
        for side, deliveries in zip(self.sides, got, strict=True):
            for one in deliveries:
                side.deliveries[one.group, one.json(), one.attempt] = one
        self.held += [(options["group"], name, attempt) for name, attempt in names[0]]

    def settle(self) -> None:
        if not self.held:
            return
        drawn = [self.held.pop(self.chance.randrange(len(self.held))) for _ in range(min(2, len(self.held)))]
        kinds = [self.chance.choice(["ack", "ack", "nak", "nak later", "reject", "reschedule"]) for _ in drawn]
        self.log.append(f"settle {list(zip(drawn, kinds, strict=True))}")
        self._equal("settle", [self._settle(side, drawn, kinds) for side in self.sides])

    def _settle(self, side: Side, drawn: list[tuple[str, Any, int]], kinds: list[str]) -> list[str]:
        make: dict[str, Any] = {
            "ack": Ack,
            "nak": lambda one: Nak(one, "busy", 0),
            "nak later": lambda one: Nak(one, "busy", 9),
            "reject": lambda one: Reject(one, "bad"),
            "reschedule": lambda one: Reschedule(one, 5),
        }
        items = [make[kind](side.deliveries[name]) for name, kind in zip(drawn, kinds, strict=True)]
        return [
            str(result.state) if result.error is None else type(result.error).__name__
            for result in side.queue.settle(items)
        ]

    def extend(self) -> None:
        if self.held:
            name = self.chance.choice(self.held)
            self.log.append(f"extend {name}")
            self._equal("extend", [_outcome(side.deliveries[name].extend, 41) for side in self.sides])

    def pass_time(self) -> None:
        seconds, sweeps = self.chance.choice([1, 5, 40]), self.chance.random() < 0.7 or self.is_sharded
        self.log.append(f"pass {seconds} s, sweep {sweeps}")
        self.clock.advance(seconds=seconds)
        for side in self.sides:
            for consumer in side.consumers:
                consumer.heartbeat()
            if sweeps:
                side.store.sweep()

    def batch_send(self) -> None:
        name = self.chance.choice(BATCHES)
        items = self._several(self.chance.randrange(1, 4))
        end = self.chance.random() < 0.5
        queue = self.chance.choice([None, None, "elsewhere"])
        shown = [(item.payload, item.key, item.priority) for item in items]
        self.log.append(f"batch send {name} {shown} to {queue} end {end}")
        self._equal("batch send", [self._send_members(side, name, items, end, queue) for side in self.sides])

    def _send_members(self, side: Side, name: str, items: list[Outgoing], end: bool, queue: str | None) -> str:
        batch = side.queue.batch(name)
        try:
            if end:
                # With a key, because a message without one goes to a random shard.
                batch.set_end(Outgoing(payload=f"end of {name} after {self.sent}", key="a"))
                batch.set_abort(Outgoing(payload=f"abort of {name} after {self.sent}", key="b"))
            ids = batch.send_many(items, queue=queue)
            if queue is None:
                side.ids.update({item.payload: message_id for item, message_id in zip(items, ids, strict=True)})
        except PenstockError as error:
            return type(error).__name__
        return "sent"

    def work_elsewhere(self) -> None:
        kinds = [self.chance.choice(["ack", "nak", "reject", "keep"]) for _ in range(2)]
        flushes = self.chance.random() < 0.05
        self.log.append(f"work elsewhere {kinds} flush {flushes}")
        self._equal("work elsewhere", [self._work_elsewhere(side, kinds, flushes) for side in self.sides])

    def _work_elsewhere(self, side: Side, kinds: list[str], flushes: bool) -> list[Any]:
        done: list[Any] = []
        for delivery, kind in zip(side.elsewhere.receive(limit=2, consumer=CONSUMERS[0]), kinds, strict=False):
            done.append((delivery.json(), delivery.attempt, delivery.is_cancelled()))
            if kind == "nak":
                done.append(_outcome(delivery.nak, "busy", 0))
            elif kind != "keep":
                done.append(_outcome(getattr(delivery, kind)))
        return [*done, side.elsewhere.flush() if flushes else None]

    def batch_start(self) -> None:
        name = self.chance.choice(BATCHES)
        self.log.append(f"batch start {name}")
        self._equal("batch start", [_outcome(side.queue.batch(name).start) for side in self.sides])

    def batch_cancel(self) -> None:
        name = self.chance.choice(BATCHES)
        if self.chance.random() < 0.5:
            self.log.append(f"batch cancel {name}")
            self._equal("batch cancel", [_outcome(side.queue.batch(name).cancel) for side in self.sides])

    def seek(self) -> None:
        moment = self.clock.now - timedelta(seconds=self.chance.randrange(60))
        group, to = self.chance.choice(GROUPS), self.chance.choice(["start", "end", moment])
        if self.chance.random() < 0.4:
            self.log.append(f"seek {group} {to}")
            self._equal("seek", [_outcome(side.queue.seek, group, to) for side in self.sides])

    def redrive(self) -> None:
        self.log.append("redrive")
        # All of them: the order of messages that died at the same time depends on positions, which differ by engine.
        self._equal("redrive", [_count(side.queue.redrive(limit=1_000)) for side in self.sides])

    # -- what must be equal ----------------------------------------------------------------------------------------

    def compare(self) -> None:
        self._equal("stats", [_stats(side.queue) for side in self.sides])
        self._equal("stats elsewhere", [_stats(side.elsewhere) for side in self.sides])
        self._equal("dead letters", [_letters(side) for side in self.sides])
        self._equal("batches", [_batches(side) for side in self.sides])

    def compare_trails(self) -> None:
        for payload in sorted(self.sides[0].ids):
            self._equal(f"trail of {payload}", [_trail(side, payload) for side in self.sides])

    def _equal(self, what: str, answers: list[Any]) -> None:
        left, right = answers
        assert left == right, "\n".join([f"{what} differs:", f"  {left}", f"  {right}", "after:", *self.log])


def _outcome(call: Any, *arguments: Any) -> str:
    try:
        call(*arguments)
    except LeaseLost:
        return "LeaseLost"
    except PenstockError as error:
        return type(error).__name__
    return "done"


def _count(result: Any) -> Any:
    return len(result) if isinstance(result, list) else result


def _stats(queue: Queue) -> dict[str, Any]:
    names = ("total", "in_progress", "redo", "done", "available", "held", "dead", "lag")
    return {
        group: {name: getattr(stats, name) for name in names}
        | {"outcomes": {name: count for name, count in stats.outcomes.items() if count}}
        for group, stats in queue.stats().items()
    }


def _letters(side: Side) -> list[Any]:
    return sorted(
        (group, str(letter.json()), letter.outcome, letter.attempts)
        for group in GROUPS
        for letter in side.queue.dead_letters(group=group, limit=1_000)
    )


def _batches(side: Side) -> list[Any]:
    return [(info.name, info.state, info.total, info.remaining) for info in side.queue.batches()]


def _trail(side: Side, payload: Any) -> dict[str, Any]:
    """By group: in which order the groups of a queue are swept is the engine's choice."""
    entries = side.queue.audit(side.ids[payload])
    return {
        group: [
            (str(entry.event), str(entry.state), entry.attempt) for entry in entries if entry.group in (None, group)
        ]
        for group in GROUPS
    }
