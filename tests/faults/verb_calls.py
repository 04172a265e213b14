"""Every verb that writes, as a call on a store that has something in every state.

A test cuts the calls short at each point in turn. A call that raised must have left nothing behind; made again it must
do what it does where nothing was cut.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any, NamedTuple

import penstock
from penstock import Ack, Delivery, Nak, Outgoing, Queue, Reject, Reschedule, Store
from tests.conformance.clock import Clock

OWN_ID = "0b8d1a52-6f43-4c1e-9a57-3d2f1e0c9b8a"
POLICY: dict[str, Any] = {"max_retries": 2, "backoff_jitter_seconds": 0, "history_seconds": 20, "lease_seconds": 60}


class Scene(NamedTuple):
    """`leased` are three deliveries of the queue `orders`, and `once` one of an `at_most_once` queue."""

    store: Store
    queue: Queue
    leased: list[Delivery]
    once: list[Delivery]


def prepare(store: Store, clock: Clock) -> Scene:
    """Unread, in flight, waiting, due, lapsed, finished, dead, expired, held and batched messages, and two groups."""
    queue, once = store.queue("orders", **POLICY), store.queue("once", delivery="at_most_once", **POLICY)
    old = store.queue("old", **POLICY)
    old.send_many([b"past 1", b"past 2"])
    old.ack_many(old.receive(limit=2))
    queue.send_many([b"done", b"dead", b"again", b"later", b"lapsed"])
    done, dead, again, later = queue.receive(limit=4)
    done.ack()
    dead.reject("bad")
    again.nak("busy", delay_seconds=5)
    later.nak("busy", delay_seconds=3600)
    queue.receive(limit=1, lease_seconds=10)
    queue.receive(limit=2, group="audit", lease_seconds=10)
    queue.send(b"expires", ttl_seconds=10)
    queue.send(b"held", delay_seconds=3600)
    queue.send(b"due", delay_seconds=5)
    queue.send(b"addressed", address="taken", delay_seconds=3600)
    for name in ("waiting", "running"):
        batch = queue.batch(name)
        batch.set_end(Outgoing(payload=f"end of {name}".encode()))
        batch.set_abort(Outgoing(payload=f"abort of {name}".encode()))
        batch.send_many([Outgoing(payload=f"{name} {number}".encode(), priority=9) for number in range(2)])
    queue.batch("running").start()
    queue.register("zoe", heartbeat_seconds=5)
    store.schedule("hourly", "0 * * * *", "orders", b"tick")
    clock.advance(seconds=30)
    queue.send_many([b"1", b"2", b"3", b"4", b"5"])
    once.send_many([b"o1", b"o2"])
    # The newest ones alone: everything older waits for a sweep, or for the receive under test.
    queue.seek("fresh", "end")
    queue.send_many([b"6", b"7", b"8"])
    leased = queue.receive(limit=3, group="fresh")
    return Scene(store, queue, leased, once.receive(limit=1))


CALLS: dict[str, Callable[[Scene], Any]] = {
    "send": lambda scene: scene.queue.send(b"new"),
    "send_many": lambda scene: scene.queue.send_many([b"new 1", Outgoing(payload=b"new 2", priority=3)]),
    "send with options": lambda scene: scene.queue.send(
        b"new", address="free", id=OWN_ID, delay_seconds=5, key="k", headers={"a": "b"}
    ),
    "first send to a queue": lambda scene: scene.store.queue("unheard of").send(b"new"),
    "receive": lambda scene: scene.queue.receive(limit=4),
    "receive of all": lambda scene: scene.queue.receive(limit=100),
    "first receive of a group": lambda scene: scene.queue.receive(limit=3, group="billing"),
    "receive at_most_once": lambda scene: scene.store.queue("once").receive(),
    "ack_many": lambda scene: scene.queue.ack_many(scene.leased),
    "ack": lambda scene: scene.leased[0].ack(),
    "nak": lambda scene: scene.leased[0].nak("why", delay_seconds=5),
    "reject": lambda scene: scene.leased[1].reject("why"),
    "reschedule": lambda scene: scene.leased[0].reschedule(5),
    "mixed settle": lambda scene: scene.queue.settle(
        [Ack(scene.leased[2]), Nak(scene.leased[0], "why", 5), Reject(scene.leased[1], "why")]
    ),
    "nak at_most_once": lambda scene: scene.store.queue("once").settle([Nak(scene.once[0], "why", 0)]),
    "reschedule at_most_once": lambda scene: scene.store.queue("once").settle([Reschedule(scene.once[0], 7)]),
    "extend": lambda scene: scene.leased[0].extend(600),
    "send to a batch": lambda scene: scene.queue.batch("waiting").send(b"one more"),
    "first send to a batch": lambda scene: scene.queue.batch("unheard of").send(b"one more"),
    "start of a batch": lambda scene: scene.queue.batch("waiting").start(),
    "cancel of a batch": lambda scene: scene.queue.batch("running").cancel(),
    "redrive": lambda scene: scene.queue.redrive(),
    "purge": lambda scene: scene.queue.purge(),
    "seek": lambda scene: scene.queue.seek("default", "start"),
    "flush": lambda scene: scene.queue.flush(),
    "remove": lambda scene: scene.queue.remove([message.id for message in scene.queue.peek(2)]),
    "trim": lambda scene: scene.queue.trim(keep=1),
    "sweep": lambda scene: scene.store.sweep(),
    "declare": lambda scene: scene.store.queue("orders", max_retries=5, delay_seconds=9),
    "pause": lambda scene: scene.queue.pause(),
    "register": lambda scene: scene.queue.register("one"),
    "schedule": lambda scene: scene.store.schedule("daily", "0 0 * * *", "orders", b"tick"),
    "run of a schedule": lambda scene: scene.store.run_schedule("hourly"),
    "unschedule": lambda scene: scene.store.unschedule("hourly"),
    "deletion of a queue": lambda scene: scene.store.queue("once").delete(),
}


# A sweep commits in parts: those of an interrupted sweep stay, and the next one does the rest.
PIECEWISE = ("sweep",)


@cache
def uncut(verb: str) -> Any:
    """The result of a call that was not cut, the same on all engines."""
    clock = Clock()
    with penstock.connect("sqlite:///:memory:", clock=clock, random=Random(7).random) as store:
        CALLS[verb](prepare(store, clock))
        return seen(store), drain(store, clock)


def seen(store: Store) -> dict[str, Any]:
    """All that clients can see, without what every store draws for itself: ids, tokens, positions."""
    found: dict[str, Any] = {
        "schedules": [(one.name, one.next_at) for one in store.schedules()],
        "consumers": sorted((one.name, one.group) for one in store.consumers()),
    }
    for info in store.queues():
        queue = store.queue(info.name)
        found[info.name] = {
            "policy": queue.policy(),
            "stats": {group: _counts(stats) for group, stats in queue.stats().items()},
            "peek": {group: [one.payload for one in queue.peek(100, group)] for group in queue.groups()},
            "letters": {
                group: sorted(
                    (one.payload, one.outcome, one.attempts, one.reason)
                    for one in queue.dead_letters(limit=100, group=group)
                )
                for group in queue.groups()
            },
            "batches": sorted((one.name, one.state, one.total, one.remaining) for one in queue.batches()),
        }
    return found


def _counts(stats: Any) -> dict[str, Any]:
    names = ("total", "in_progress", "redo", "done", "available", "held", "dead", "lag", "endings", "outcomes")
    return {name: getattr(stats, name) for name in names}


def drain(store: Store, clock: Clock) -> dict[str, list[tuple[bytes, int]]]:
    """What every group is still handed when time passes and all is acked. Sorted: which of two batches that end with
    one settlement sends its end message first is the engine's choice."""
    found: dict[str, list[tuple[bytes, int]]] = {}
    for info in store.queues():
        queue = store.queue(info.name)
        queue.resume()
        for group in queue.groups():
            found[f"{info.name}/{group}"] = []
    for _ in range(4):
        for place, handed in found.items():
            name, group = place.split("/")
            while deliveries := store.queue(name).receive(limit=10, group=group):
                handed += [(one.payload, one.attempt) for one in deliveries]
                store.queue(name).ack_many(deliveries)
        clock.advance(seconds=1900)
        store.sweep()
    return {place: sorted(handed) for place, handed in found.items()}
