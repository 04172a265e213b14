"""Synthetic histories: a small legal one, in which tests plant violations."""

from __future__ import annotations

from typing import Any

from penstock.chaos.history import Event

QUEUE = "work"
SECOND = 1_000_000


class Script:
    """Builds events in sequence; times are in seconds."""

    def __init__(self, **rules: Any) -> None:
        self.events: list[Event] = []
        self._calls = 0
        self.queue(QUEUE, **rules)

    def queue(self, name: str, **rules: Any) -> None:
        self._add("run", "queue", "ok", 0, queue=name, **{"groups": ["default"], "max_retries": 1, **rules})

    def send(self, at: float, *messages: str, kind: str = "ok", queue: str = QUEUE, **options: Any) -> None:
        described = [{"message": message, **options} for message in messages]
        call = self._add("sender", "send", "invoke", at, queue=queue, messages=described)
        if kind != "killed":
            ids = [f"id-{message}" for message in messages] if kind == "ok" else None
            self._add("sender", "send", kind, at + 0.01, call=call, ids=ids)

    def receive(
        self,
        at: float,
        *taken: tuple[str, int, int],
        by: str = "c1",
        lease: float = 1,
        queue: str = QUEUE,
        group: str = "default",
        kind: str = "ok",
    ) -> None:
        """Add a receive; `taken` lists message, token and attempt."""
        call = self.begin_receive(at, by, lease, queue, group)
        if kind != "killed":
            self.end_receive(at + 0.01, call, *taken, by=by, kind=kind)

    def begin_receive(
        self, at: float, by: str = "c1", lease: float = 1, queue: str = QUEUE, group: str = "default"
    ) -> int:
        return self._add(by, "receive", "invoke", at, queue=queue, group=group, limit=9, lease=lease)

    def end_receive(self, at: float, call: int, *taken: tuple[str, int, int], by: str = "c1", kind: str = "ok") -> None:
        several = [
            {"id": f"id-{message}", "message": message, "token": token, "attempt": attempt}
            for message, token, attempt in taken
        ]
        self._add(by, "receive", kind, at, call=call, taken=several)

    def hand_content(self, at: float, message: str, content: str) -> None:
        """Add a delivery whose client recorded the contents of the message."""
        call = self.begin_receive(at)
        taken = [{"id": f"id-{message}", "message": message, "token": 77, "attempt": 1, "content": content}]
        self._add("c1", "receive", "ok", at + 0.01, call=call, taken=taken)
        self.settle(at + 0.1, message, 77, state="succeeded")

    def settle(
        self,
        at: float,
        message: str,
        token: int,
        verb: str = "ack",
        *,
        by: str = "c1",
        kind: str = "ok",
        state: str | None = None,
        delay: float | None = None,
        queue: str = QUEUE,
    ) -> None:
        about: dict[str, Any] = {"queue": queue, "group": "default", "message": message, "token": token}
        call = self._add(by, "settle", "invoke", at, verb=verb, delay=delay, **about)
        if kind != "killed":
            self._add(by, "settle", kind, at + 0.01, call=call, state=state)

    def extend(self, at: float, message: str, token: int, seconds: float, kind: str = "ok") -> None:
        about: dict[str, Any] = {"queue": QUEUE, "group": "default", "message": message, "token": token}
        call = self._add("c1", "extend", "invoke", at, seconds=seconds, **about)
        self._add("c1", "extend", kind, at + 0.01, call=call)

    def dead(self, message: str, outcome: str, attempts: int, queue: str = QUEUE, at: float = 90) -> None:
        about = {"queue": queue, "group": "default", "message": message}
        self.note("dead", at, outcome=outcome, attempts=attempts, **about)

    def batch(self, at: float, verb: str, name: str, kind: str = "ok", state: str | None = None) -> None:
        about: dict[str, Any] = {"batch": name, "queue": QUEUE, "end": f"end-{name}", "abort": f"abort-{name}"}
        call = self._add("batcher", "batch", "invoke", at, verb=verb, **about)
        self._add("batcher", "batch", kind, at + 0.01, call=call, state=state)

    def act(self, at: float, op: str, *messages: str, kind: str = "ok", group: str = "default") -> None:
        """An operator's redrive or remove of messages, or the seek of a group."""
        named = {"messages": [{"message": message} for message in messages]} if messages else {"target": "start"}
        call = self._add("operator", op, "invoke", at, queue=QUEUE, group=group, **named)
        if kind != "killed":
            self._add("operator", op, kind, at + 0.01, call=call)

    def drained(self, queue: str = QUEUE) -> None:
        self.note("drained", 99, queue=queue, group="default")

    def note(self, op: str, at: float, process: str = "run", **fields: Any) -> None:
        self._add(process, op, "ok", at, **fields)

    def _add(self, process: str, op: str, kind: str, at: float, call: int | None = None, **fields: Any) -> int:
        self._calls += 1
        number = self._calls if call is None else call
        time = round(at * SECOND)
        self.events.append({"process": process, "call": number, "t": time, "op": op, "type": kind, **fields})
        return number

    def sorted(self) -> list[Event]:
        return sorted(self.events, key=lambda event: event["t"])
