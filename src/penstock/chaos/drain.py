"""The end of a run: after the faults, receive every message and read the remaining state."""

from __future__ import annotations

import random
import time
from pathlib import Path

import penstock
from penstock.chaos.history import Event, Recorder, clock
from penstock.chaos.plan import LEASE_SECONDS, POISON, QUEUES, REPLAY_GROUP
from penstock.chaos.ports.port import message_of
from penstock.chaos.ports.python import taken

LIMIT = 500
DRAIN_LEASE_SECONDS = 20
# Leases and delays of the run end within this time.
QUIET_SECONDS = LEASE_SECONDS + 1.0
LONGEST_SECONDS = 300
AUDITED = 150


class Drain:
    def __init__(self, store: penstock.Store, recorder: Recorder, queues: dict[str, str]) -> None:
        self.store = store
        self.recorder = recorder
        self.queues = queues

    def run(self) -> None:
        """Receive until a whole round that begins long enough after the last delivery returns nothing: on a busy
        machine a single call may take longer than that. A queue that does not become empty is reported to the
        checker."""
        places = [(self.queues[one.kind], group) for one in QUEUES if one.kind in self.queues for group in one.groups]
        self._come_to_rest(places, QUIET_SECONDS)
        for queue, group in places:
            self.note_dead_letters(queue, group)
            self.recorder.note("drained", queue=queue, group=group)

    def replay(self) -> None:
        """Read the log again from the start, without other readers: every message that is still readable must be
        delivered again."""
        queue = self.queues["work"]
        call = self.recorder.invoke("seek", queue=queue, group=REPLAY_GROUP, target="start")
        self.store.queue(queue).seek(REPLAY_GROUP, "start")
        self.recorder.answer("seek", "ok", call)
        # All earlier leases have ended.
        self._come_to_rest([(queue, REPLAY_GROUP)], 0)
        self.recorder.note("replayed", queue=queue, group=REPLAY_GROUP)

    def _come_to_rest(self, places: list[tuple[str, str]], quiet_seconds: float) -> None:
        began = round_began = quiet_since = time.monotonic()
        while True:
            handed = [queue for queue, group in places if self._empty(queue, group)]
            self.store.sweep()
            if handed:
                quiet_since = time.monotonic()
            elif round_began - quiet_since > quiet_seconds:
                break
            if time.monotonic() - began > LONGEST_SECONDS:
                self.recorder.note("stuck", queue=", ".join(handed), seconds=LONGEST_SECONDS)
                break
            time.sleep(0.1)
            round_began = time.monotonic()

    def collect(self, mark: Path | None) -> None:
        """Remove what a long run would accumulate: dead letters are recorded and purged, ticks are received, and the
        stream, whose entries nothing else ends, is trimmed up to its follower's mark."""
        self._empty(self.queues["ticks"], "default")
        if mark is not None:
            self.store.queue(self.queues["stream"]).trim(upto=int(mark.read_text().rpartition("-")[2]))
        for one in QUEUES:
            for group in one.groups if one.kind in self.queues else ():
                queue = self.queues[one.kind]
                if ids := self.note_dead_letters(queue, group):
                    self.store.queue(queue).purge(ids, group=group)

    def _empty(self, queue: str, group: str) -> bool:
        source = self.store.queue(queue)
        lease = DRAIN_LEASE_SECONDS
        call = self.recorder.invoke("receive", queue=queue, group=group, limit=LIMIT, lease=lease)
        got = source.receive(LIMIT, group, "drain", lease)
        self.recorder.answer("receive", "ok", call, taken=[taken(one).described for one in got])
        self._settle(source, group, got)
        return bool(got)

    def _settle(self, source: penstock.Queue, group: str, got: list[penstock.Delivery]) -> None:
        several = []
        calls = []
        for delivery in got:
            one = taken(delivery)
            verb = "nak" if one.message.startswith(POISON) and group == "default" else "ack"
            several.append(penstock.Ack(delivery) if verb == "ack" else penstock.Nak(delivery, "poison", 0))
            calls.append(
                self.recorder.invoke(
                    "settle", verb=verb, delay=0, queue=source.name, group=group, message=one.message, token=one.token
                )
            )
        for call, settled in zip(calls, source.settle(several) if several else (), strict=True):
            state = None if settled.state is None else str(settled.state)
            self.recorder.answer("settle", "ok" if settled.ok else "fail", call, state=state)

    def note_dead_letters(self, queue: str, group: str) -> list[str]:
        ids: list[str] = []
        before: penstock.DeadLetter | None = None
        asked = clock()
        while letters := self.store.queue(queue).dead_letters(LIMIT, group, before=before):
            for letter in letters:
                message = message_of(letter.payload, letter.headers)
                about = {"queue": queue, "group": group, "message": message}
                self.recorder.note("dead", outcome=str(letter.outcome), attempts=letter.attempts, asked=asked, **about)
            ids += [letter.id for letter in letters]
            before = letters[-1]
        return ids

    def start_left_batches(self, events: list[Event]) -> None:
        """Start batches that a process left open when it was killed between the last member and the start. A batch that
        may have no end message is started without recording it."""
        known = _opened(events)
        source = self.store.queue(self.queues["batches"])
        for info in source.batches():
            if info.state == "open":
                about = known.get(info.name)
                call = None if about is None else self.recorder.invoke("batch", verb="start", **about)
                source.batch(info.name).start()
                if call is not None:
                    self.recorder.answer("batch", "ok", call)

    def read_audits(self, events: list[Event], seed: int) -> None:
        """Record the audit trails of some messages, of the queue that keeps them."""
        queue = self.queues["work"]
        ids = {
            one["message"]: one["id"]
            for event in events
            if event["op"] == "receive" and event["type"] == "ok"
            for one in event["taken"]
            if one["message"].startswith(("work", POISON))
        }
        chosen = random.Random(seed).sample(sorted(ids), min(AUDITED, len(ids)))
        groups = next(one.groups for one in QUEUES if one.kind == "work")
        for message in chosen:
            try:
                trail = self.store.queue(queue).audit(ids[message])
            except penstock.NotFound:
                continue  # of another queue
            entries = [
                {"event": str(one.event), "state": str(one.state), "group": one.group, "attempt": one.attempt}
                for one in trail
            ]
            self.recorder.note("audit", queue=queue, groups=groups, message=message, trail=entries)


def _opened(events: list[Event]) -> dict[str, Event]:
    asked = {
        (event["process"], event["call"]): event
        for event in events
        if event["op"] == "batch" and event["type"] == "invoke" and event["verb"] == "open"
    }
    answered = {
        (event["process"], event["call"]) for event in events if event["op"] == "batch" and event["type"] == "ok"
    }
    return {
        event["batch"]: {name: event[name] for name in ("batch", "queue", "end", "abort")}
        for call, event in asked.items()
        if call in answered
    }
