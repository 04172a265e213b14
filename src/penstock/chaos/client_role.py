"""A client: sends, receives and settles through one protocol, with everything that consumers do to messages."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from typing import Any

import penstock
from penstock.chaos.history import Recorder
from penstock.chaos.plan import AUDIT_GROUP, LEASE_SECONDS, POISON, REPLAY_GROUP, ActorPlan
from penstock.chaos.ports.port import LOST, Denied, Item, Port, Taken
from penstock.chaos.ports.python import PythonPort, outgoing

Step = Callable[[], None]
TRIES = 6
ADDRESS_SPAN = 20
SENDS = {"work": 6, "once": 2, "ordered": 2, "jobs": 2, "stream": 2, "addressed": 2}
RECEIVES = {("work", "default"): 6, ("work", AUDIT_GROUP): 3, ("work", REPLAY_GROUP): 2, ("once", "default"): 2,
            ("ordered", "default"): 4, ("addressed", "default"): 2, ("batches", "default"): 2,
            ("ticks", "default"): 2}  # fmt: skip
PLANS = {"ack": 70, "nak": 8, "reject": 2, "reschedule": 4, "extend": 5, "forget": 4, "late": 1, "repeat": 6}


class ClientRole:
    def __init__(self, plan: ActorPlan, recorder: Recorder, port: Port, thread: int) -> None:
        self.plan = plan
        self.port = port
        self.recorder = recorder
        self.name = f"{plan.process}-{thread}"
        self.random = random.Random(plan.seed * 100 + thread)
        self._count = 0
        self._sends = _weighted({kind: share for kind, share in SENDS.items() if kind in plan.queues})
        self._receives = _weighted({place: share for place, share in RECEIVES.items() if place[0] in plan.queues})

    def step(self) -> None:
        time.sleep(self.random.uniform(0, 0.05))
        if self.random.random() < 0.4:
            self.send()
        else:
            self.consume()

    # -- send ------------------------------------------------------------------------------------------------------

    def send(self) -> None:
        kind = self.random.choice(self._sends)
        style = self.random.choice(["one", "one", "many", "retried", "producer"])
        if style in ("many", "producer") and self.plan.protocol == "resp" and self.plan.engine == "redis":
            style = "one"  # there MULTI is no transaction
        if kind == "addressed" and style in ("many", "producer"):
            style = "one"  # one item of several may have an address that is in use; then none is sent
        items = [self._item(kind) for _ in range(self.random.randint(2, 8) if style in ("many", "producer") else 1)]
        if style == "producer" and isinstance(self.port, PythonPort):
            self._send_by_producer(self.plan.queues[kind], items, self.port.store)
        else:
            if style == "retried":
                items[0].id = str(uuid.UUID(int=self.random.getrandbits(128), version=4))
            self._send(self.plan.queues[kind], items, TRIES if style == "retried" else 1)

    def _item(self, kind: str) -> Item:
        self._count += 1
        poison = kind in ("work", "jobs") and self.random.random() < 0.06
        item = Item(f"{POISON if poison else kind}-{self.name}-{self._count}", poison=poison)
        item.headers = self.random.choice([None, {"number": str(self._count), "of": "chaos \u2713"}])
        if kind == "ordered":
            item.key = self.random.choice("abcde")
            item.priority = self.random.choice([0, 0, 0, 1])
        elif kind == "addressed":
            # Clients come to the next address at about the same time.
            item.address = f"address-{self._count // ADDRESS_SPAN}"
        elif kind in ("work", "once") and not poison:
            item.priority = self.random.choice([0, 0, 1, 2])
            item.delay = self.random.choice([None, None, None, 0.4])
            item.ttl = self.random.choice([None, None, None, None, 2.0])
        return item

    def _send(self, queue: str, items: list[Item], tries: int) -> None:
        """A message with an id chosen by the sender may be sent again after a lost reply: it counts as the same
        send."""
        call = self.recorder.invoke("send", queue=queue, messages=[item.described for item in items])
        for left in reversed(range(tries)):
            try:
                ids = self.port.send(queue, items)
            except Denied as denied:
                # After a lost reply, a refusal does not tell whether the first attempt succeeded.
                kind = "fail" if left == tries - 1 else "unknown"
                return self.recorder.answer("send", kind, call, refusal=str(denied)[:200])
            except LOST:
                if not left:
                    return self.recorder.answer("send", "unknown", call)
                time.sleep(0.1)
            else:
                return self.recorder.answer("send", "ok", call, ids=ids)
        return None

    def _send_by_producer(self, queue: str, items: list[Item], store: penstock.Store) -> None:
        """A message that the producer has accepted is sent once, however often its flush fails."""
        calls = [self.recorder.invoke("send", queue=queue, messages=[item.described]) for item in items]
        producer = store.queue(queue).producer(batch_size=4, linger_seconds=0.02)
        gathered = []
        for item in items:
            try:
                gathered.append(producer.send(outgoing(item)))
            except LOST:
                break  # neither accepted, nor are the items after it
        for call in calls[len(gathered) :]:
            self.recorder.answer("send", "fail", call)
        for _ in range(TRIES):
            try:
                producer.close()
                break
            except LOST:
                time.sleep(0.1)
        for call, one in zip(calls, gathered, strict=False):
            self.recorder.answer("send", "ok" if one.is_sent else "unknown", call)

    # -- receive and settle ----------------------------------------------------------------------------------------

    def consume(self) -> None:
        kind, group = self.random.choice(self._receives)
        for taken in self.receive(self.plan.queues[kind], group):
            plan = self.random.choices([*PLANS], [*PLANS.values()])[0]
            if taken.message.startswith(POISON) and group == "default":
                plan = self.random.choice(["nak", "nak", "forget"])
            elif group != "default" and plan == "reject":
                plan = "ack"
            self._carry_out(plan, self.plan.queues[kind], group, taken)

    def receive(self, queue: str, group: str) -> list[Taken]:
        limit = self.random.choice([1, 4, 10, 10])
        call = self.recorder.invoke("receive", queue=queue, group=group, limit=limit, lease=LEASE_SECONDS)
        try:
            several = self.port.receive(queue, group, self.name, limit, LEASE_SECONDS)
        except Denied:
            self.recorder.answer("receive", "ok", call, taken=[])
            return []
        except LOST:
            self.recorder.answer("receive", "unknown", call)
            return []
        self.recorder.answer("receive", "ok", call, taken=[one.described for one in several])
        return several

    def _carry_out(self, plan: str, queue: str, group: str, taken: Taken) -> None:
        if plan == "forget":
            return
        if plan == "late":
            time.sleep(LEASE_SECONDS * 1.2)
        if plan == "extend":
            self._extend(queue, group, taken)
        if plan == "nak":
            self.settle(queue, group, taken, "nak", self.random.choice([None, 0, 0.3]))
        elif plan == "reschedule":
            self.settle(queue, group, taken, "reschedule", self.random.choice([0, 0.3]))
        elif plan == "reject":
            self.settle(queue, group, taken, "reject", None)
        else:
            self.settle(queue, group, taken, "ack", None)
            if plan == "repeat":
                self.settle(queue, group, taken, "ack", None)

    def settle(self, queue: str, group: str, taken: Taken, verb: str, delay: float | None) -> None:
        about = _about(queue, group, taken)
        call = self.recorder.invoke("settle", verb=verb, delay=delay, **about)
        try:
            state = self.port.settle(queue, group, taken, verb, delay)
        except Denied:
            self.recorder.answer("settle", "fail", call)
        except LOST:
            self.recorder.answer("settle", "unknown", call)
        else:
            self.recorder.answer("settle", "ok", call, state=state)

    def _extend(self, queue: str, group: str, taken: Taken) -> None:
        call = self.recorder.invoke("extend", seconds=LEASE_SECONDS, **_about(queue, group, taken))
        try:
            self.port.extend(queue, group, taken, LEASE_SECONDS)
        except Denied:
            self.recorder.answer("extend", "fail", call)
        except LOST:
            self.recorder.answer("extend", "unknown", call)
        else:
            self.recorder.answer("extend", "ok", call)


def _about(queue: str, group: str, taken: Taken) -> dict[str, Any]:
    return {"queue": queue, "group": group, "message": taken.message, "token": taken.token}


def _weighted(shares: dict[Any, int]) -> list[Any]:
    return [one for one, share in shares.items() for _ in range(share)]
