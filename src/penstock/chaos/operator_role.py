"""An operator: redrives dead letters, moves the cursor of a group, and removes messages."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import penstock
from penstock.chaos.history import Recorder
from penstock.chaos.plan import REPLAY_GROUP, ActorPlan
from penstock.chaos.ports.port import LOST, Denied, Item, message_of
from penstock.chaos.ports.python import REFUSED, outgoing
from penstock.chaos.ports.resp import RespPort
from penstock.chaos.store_roles import StoreRole

REDRIVEN = ("work", "once", "jobs")
KEPT = 30


class OperatorRole(StoreRole):
    def __init__(self, plan: ActorPlan, recorder: Recorder, store: penstock.Store) -> None:
        super().__init__(plan, recorder, store)
        self._sent: list[tuple[str, str, str]] = []
        self._port = RespPort(plan.resp_url) if "stream" in plan.queues else None

    def step(self) -> None:
        time.sleep(self.random.uniform(0.05, 0.25))
        acts = [self.redrive, self.redrive, self.seek, self.send, self.send, self.remove, self.remove]
        # Only a read raises LOST here: calls that change something record it.
        with contextlib.suppress(*LOST):
            self.random.choice([*acts, self.delete_entry] if self._port is not None else acts)()

    def redrive(self) -> None:
        kind = self.random.choice(REDRIVEN)
        letters = self.queue(kind).dead_letters(50, "default")
        chosen = self.random.sample(letters, min(3, len(letters)))
        names = [message_of(one.payload, one.headers) for one in chosen]
        if names:
            ids = [one.id for one in chosen]
            self._change("redrive", kind, names, lambda: self.queue(kind).redrive(ids, group="default"))

    def seek(self) -> None:
        """Move the group's cursor. Half of the seeks go to the end: a group that is always moved back would never
        finish."""
        target = self.random.choice(["start", "end", "end", "time"])
        place = datetime.now(UTC) - timedelta(seconds=self.random.uniform(0, 5)) if target == "time" else target
        about = {"queue": self.plan.queues["work"], "group": REPLAY_GROUP, "target": target}

        def move() -> int:
            self.queue("work").seek(REPLAY_GROUP, place)
            return 1

        self._answer("seek", self.recorder.invoke("seek", **about), move, 1)

    def send(self) -> None:
        kind = self.random.choice(["work", "ordered"])
        items = [Item(self.name(kind)) for _ in range(self.random.randint(1, 3))]
        for item in items:
            item.key = self.random.choice("abcde") if kind == "ordered" else None
        described = [item.described for item in items]
        call = self.recorder.invoke("send", queue=self.plan.queues[kind], messages=described)
        try:
            ids = self.queue(kind).send_many([outgoing(item) for item in items])
        except LOST:
            self.recorder.answer("send", "unknown", call)
            return
        self.recorder.answer("send", "ok", call, ids=ids)
        self._sent += [(kind, item.message, id) for item, id in zip(items, ids, strict=True)]
        self._sent = self._sent[-KEPT:]

    def remove(self) -> None:
        """Remove a recent message, in whatever state it is."""
        if self._sent:
            kind, message, id = self._sent.pop(self.random.randrange(len(self._sent)))
            self._change("remove", kind, [message], lambda: self.queue(kind).remove([id]))

    def delete_entry(self) -> None:
        port = self._port
        assert port is not None
        found = port.call("XREVRANGE", self.plan.queues["stream"], "+", "-", "COUNT", 5)
        if found:
            entry, fields = found[-1]
            message = message_of(dict(zip(fields[::2], fields[1::2], strict=True))[b"payload"])
            self._change("remove", "stream", [message], lambda: port.call("XDEL", self.plan.queues["stream"], entry))

    def _change(self, op: str, kind: str, messages: list[str], change: Callable[[], int]) -> None:
        about: dict[str, Any] = {"queue": self.plan.queues[kind], "group": "default"}
        call = self.recorder.invoke(op, messages=[{"message": one} for one in messages], **about)
        self._answer(op, call, change, len(messages))

    def _answer(self, op: str, call: int, change: Callable[[], int], expected: int) -> None:
        """Record the result by the number of changed messages. If some of several were changed, it is unknown which."""
        try:
            count = change()
        except (Denied, *REFUSED):
            self.recorder.answer(op, "fail", call)
        except LOST:
            self.recorder.answer(op, "unknown", call)
        else:
            self.recorder.answer(op, "ok" if count == expected else "unknown" if count else "fail", call)
