"""One process of a fault test: `python -m tests.faults.actor ROLE URL HISTORY SEED QUEUE`.

It does what its role says until its standard input ends or it is killed, and writes every step to its history before
it acts on it. Roles that vanish kill themselves at a named moment: that is exact where killing from outside is luck.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

import penstock
from penstock import Ack, LeaseLost, Nak, Reject, Reschedule
from penstock.domain.validation import from_time
from tests.faults.history import Writer, engine_time

LEASE_SECONDS = 0.6
READY = "ready\n"
# Seconds at most between two actions. Senders on a quick disk must leave the others a chance to keep up.
PAUSES = {"sweeper": 0.1, "sender": 0.03}


class Actor:
    def __init__(self, url: str, history: Path, seed: int, queue: str) -> None:
        self.process = history.stem
        self.writer = Writer(history, self.process)
        self.random = random.Random(seed)
        self.store = penstock.connect(url)
        self.queue = self.store.queue(queue)
        self.counter = 0

    def write(self, op: str, type: str, **fields: Any) -> None:
        self.writer.write(op, type, queue=self.queue.name, **fields)

    def next_number(self) -> int:
        self.counter += 1
        return self.counter

    # -- sending ---------------------------------------------------------------------------------------------------

    def send(self) -> None:
        """Alone or many at once, now and then delayed or poison; and sometimes a whole batch."""
        if self.random.random() < 0.1:
            return self.send_batch()
        items = [self._outgoing() for _ in range(self.random.choice([1, 1, 3, 10]))]
        payloads = [item.payload.decode() for item in items]
        self.write("send", "invoke", payloads=payloads)
        ids = self.queue.send_many(items)
        self.write("send", "ok", payloads=payloads, ids=ids)
        return None

    def _outgoing(self) -> penstock.Outgoing:
        kind = "once" if self.queue.name == "once" else self.random.choice(["plain"] * 12 + ["poison"])
        delay = self.random.choice([None, None, None, 0.3])
        return penstock.Outgoing(
            payload=f"{kind}-{self.process}-{self.next_number()}".encode(),
            priority=self.random.choice([0, 0, 1]),
            delay_seconds=delay,
            headers={"not_before": str(engine_time() + round((delay or 0) * 1_000_000))},
        )

    def send_batch(self) -> None:
        name = f"batch-{self.process}-{self.next_number()}"
        batch, end = self.queue.batch(name), f"end-{name}"
        members = [f"member-{name}-{number}" for number in range(self.random.randint(0, 4))]
        self.write("send", "invoke", payloads=[end])
        batch.set_end(end.encode())
        for member in members:
            self.write("send", "invoke", payloads=[member])
            self.write("send", "ok", payloads=[member], ids=[batch.send(member.encode())])
        self.write("batch", "invoke", name=name, members=members, end=end)
        batch.start()
        self.write("batch", "ok", name=name, members=members, end=end)

    # -- receiving and settling ------------------------------------------------------------------------------------

    def receive(self, group: str | None = None) -> list[penstock.Delivery]:
        asked_at = engine_time()
        limit = self.random.choice([1, 4, 10])
        got = self.queue.receive(limit=limit, group=group, consumer=self.process, lease_seconds=LEASE_SECONDS)
        for delivery in got:
            self.write("delivery", "ok", asked_at=asked_at, **described(delivery))
        return got

    def consume(self) -> None:
        """Mostly ack; else nak, reject, come back later, hold on, forget, be late, or ack twice. Poison is never
        acked."""
        for delivery in self.receive():
            plans = (
                self.ack,
                self.nak,
                self.reject,
                self.reschedule,
                self.extend,
                self.forget,
                self.late,
                self.ack_twice,
            )
            plan = self.random.choices(plans, [70, 8, 2, 4, 6, 4, 1, 5])[0]
            if delivery.payload.startswith(b"poison"):
                plan = self.random.choice([self.nak, self.nak, self.forget])
            plan(delivery)

    def ack(self, delivery: penstock.Delivery) -> None:
        self.settle(Ack(delivery), "ack")

    def ack_twice(self, delivery: penstock.Delivery) -> None:
        if self.settle(Ack(delivery), "ack"):
            self.settle(Ack(delivery), "ack", repeat=True)

    def nak(self, delivery: penstock.Delivery) -> None:
        self.settle(Nak(delivery, "again", self.random.choice([0, 0.1])), "nak")

    def reject(self, delivery: penstock.Delivery) -> None:
        self.settle(Reject(delivery, "never"), "reject")

    def reschedule(self, delivery: penstock.Delivery) -> None:
        self.settle(Reschedule(delivery, 0.1, "later"), "reschedule")

    def forget(self, delivery: penstock.Delivery) -> None:
        """A consumer that lost its memory: the lease must end by itself."""

    def late(self, delivery: penstock.Delivery) -> None:
        """Its lease is over when it comes to settling, and so are those of whatever else it has received."""
        time.sleep(1.5 * LEASE_SECONDS)
        self.ack(delivery)

    def extend(self, delivery: penstock.Delivery) -> None:
        said = {"call": self.next_number(), **described(delivery)}
        self.write("extend", "invoke", **said)
        try:
            delivery.extend(LEASE_SECONDS)
            self.write("extend", "ok", **said)
        except LeaseLost:
            self.write("extend", "refused", **said)
        self.ack(delivery)

    def settle(self, settlement: Ack | Nak | Reject | Reschedule, verb: str, repeat: bool = False) -> bool:
        delivery: Any = settlement.delivery
        said = {"verb": verb, "call": self.next_number(), "repeat": repeat, **described(delivery)}
        self.write("settle", "invoke", **said)
        result = self.queue.settle([settlement])[0]
        self.write("settle", "ok" if result.ok else "refused", state=result.state, **said)
        return result.ok

    def read_along(self) -> None:
        """A second group, which acks all it gets."""
        for delivery in self.receive("audit"):
            self.ack(delivery)

    # -- looking after the queue -----------------------------------------------------------------------------------

    def sweep(self) -> None:
        report = self.store.sweep()
        self.write("sweep", "ok", **msgspec.to_builtins(report))
        asked_at = engine_time()
        every = self.queue.stats()
        for group, stats in every.items():
            self.write("stats", "ok", asked_at=asked_at, group=group, stats=msgspec.to_builtins(stats))

    # -- vanishing at a named moment -------------------------------------------------------------------------------

    def vanish_after_receive(self) -> None:
        if self.receive():
            vanish()

    def vanish_while_settling(self) -> None:
        got = self.receive()
        for delivery in got[: len(got) // 2]:
            self.ack(delivery)
        if got:
            vanish()

    def vanish_while_sweeping(self) -> None:
        self.sweep()
        vanish()

    def vanish_after_send(self) -> None:
        for _ in range(self.random.randint(1, 5)):
            self.send()
        vanish()


ROLES: dict[str, Callable[[Actor], None]] = {
    "sender": Actor.send,
    "consumer": Actor.consume,
    "reader": Actor.read_along,
    "sweeper": Actor.sweep,
    "vanish-after-receive": Actor.vanish_after_receive,
    "vanish-while-settling": Actor.vanish_while_settling,
    "vanish-while-sweeping": Actor.vanish_while_sweeping,
    "vanish-after-send": Actor.vanish_after_send,
}


def described(delivery: penstock.Delivery) -> dict[str, Any]:
    not_before = delivery.headers.get("not_before")
    return {
        "id": delivery.id,
        "payload": delivery.payload.decode(),
        "group": delivery.group,
        "token": delivery.token,
        "attempt": delivery.attempt,
        "lease_ends_at": _micro(delivery.lease_ends_at),
        "expires_at": _micro(delivery.expires_at),
        "available_at": None if not_before is None else int(not_before),
    }


def _micro(at: datetime | None) -> int | None:
    return None if at is None else from_time("at", at)


def vanish() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def told_to_stop(within_seconds: float) -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], within_seconds)
    return bool(readable)


def main(role: str, url: str, history: str, seed: str, queue: str) -> None:
    actor = Actor(url, Path(history), int(seed), queue)
    sys.stdout.write(READY)
    sys.stdout.flush()
    pause = PAUSES.get(role, 0.01)
    while not told_to_stop(pause * actor.random.random()):
        ROLES[role](actor)
    actor.store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
