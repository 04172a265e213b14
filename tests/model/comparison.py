"""Compares a real store with the reference model, and advances the model with the clock."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine, invariant

import penstock
from penstock import Event, PenstockError, Policy, State
from penstock.domain.lifecycle import LIVE, is_legal
from tests.conformance.engines import ENGINES
from tests.model.reference import PRIMARY, SECOND, WAITING, Model, Place

KEEP_FOREVER = 1_000_000_000.0


class Comparison(RuleBasedStateMachine):
    ordered = False
    engine = ENGINES[0]

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_700_000_000 * SECOND
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-model-"))
        jitter = random.Random(7)
        url = self.engine.fresh_url(self.folder)
        settings = self.engine.settings(url)
        self.store = penstock.connect(url, clock=lambda: self.now, random=jitter.random, **settings)
        policy: dict[str, Any] = {
            "backoff_jitter_seconds": 0,
            "ordered": self.ordered,
            "history_seconds": KEEP_FOREVER,
            "dead_letter_seconds": KEEP_FOREVER,
            "group_idle_seconds": KEEP_FOREVER,
        }
        self.queue = self.store.queue("orders", **policy)
        self.model = Model(Policy(**policy))
        self.count = 0
        self.deliveries: list[tuple[penstock.Delivery, bytes | None]] = []
        self.highest_token = -1
        self.highest_position = 0
        self.touched: set[bytes] = set()
        self.forgotten: set[str] = set()
        self.counters: dict[str, dict[str, int]] = {}

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    # -- what must agree after every step --------------------------------------------------------------------------

    @invariant()
    def all_agree(self) -> None:
        self._catch_up()
        self.counts_agree()
        self.letters_agree()
        self.batches_agree()
        self.addresses_agree()
        self.next_ones_agree()
        self.trails_agree()

    def counts_agree(self) -> None:
        stats = self.queue.stats()
        assert set(stats) == set(self.model.groups)
        for group in self.model.groups:
            self._check_counts(group, stats[group])

    def _check_counts(self, group: str, stats: penstock.GroupStats) -> None:
        real = {
            name: getattr(stats, name) for name in ("held", "available", "redo", "in_progress", "done", "dead", "total")
        }
        live = sum(real[name] for name in ("held", "available", "redo", "in_progress"))
        assert live + sum(stats.outcomes.values()) == len(self.model.groups[group]), f"law 7 in {group}: {stats}"
        assert real["total"] == live + real["done"] + real["dead"], f"total of {group}: {stats}"
        counters = {**stats.endings, "attempts": stats.failed_attempts}
        fallen = {name for name, count in self.counters.get(group, {}).items() if counters[name] < count}
        assert not fallen, f"counters of {group} fell: {self.counters[group]} to {counters}"
        assert all(stats.endings[name] >= count for name, count in stats.outcomes.items()), (
            f"endings of {group}: {stats}"
        )
        self.counters[group] = counters
        overdue = {(name, key) for name, key, _ in self._overdue()}
        if any(name == group for name, _ in overdue) or any(
            self.model.in_limbo(group, key) for key in self.model.notes
        ):
            return
        expected = self.model.counts(group)
        due = sum(self.model.is_due(key, place, self.now) for key, place in self.model.groups[group].items())
        assert 0 <= expected["held"] - real["held"] <= due, f"held in {group}: {real}, model {expected}"
        if not due:
            assert real == expected, f"counts of {group}"
        outcomes = {name: count for name, count in stats.outcomes.items() if count}
        assert outcomes == self.model.outcomes(group), f"outcomes of {group}"

    def letters_agree(self) -> None:
        for group in self.model.groups:
            letters = {letter.payload: letter for letter in self.queue.dead_letters(limit=1000, group=group)}
            assert sorted(letters) == sorted(self.model.letters(group)), f"dead letters of {group}"
            for key, letter in letters.items():
                place = self.model.groups[group][key]
                assert (letter.outcome, letter.attempts) == (place.state, place.attempt), f"letter of {key!r}"

    def batches_agree(self) -> None:
        for name, batch in self.model.batches.items():
            info = self.queue.batch(name).info()
            assert (info.state, info.remaining) == (batch.state, self.model.remaining(batch)), f"batch {name}"
            assert info.total == len(batch.members)
            assert 0 <= info.cancelled <= info.finished == info.total - info.remaining, f"batch {name}: {info}"

    def addresses_agree(self) -> None:
        for address, key in self.model.addresses.items():
            place = self.model.place(key)
            answer = self._wait(address)
            if place.state in LIVE:
                assert isinstance(answer, penstock.WaitTimeout), f"{address}: {answer!r}"
            elif place.state is State.SUCCEEDED:
                assert answer == State.SUCCEEDED, f"{address}: {answer!r}"
            else:
                assert isinstance(answer, penstock.MessageFailed), f"{address}: {answer!r}"
                assert answer.outcome == place.state

    def _wait(self, address: str) -> Any:
        return self._call(lambda: self.queue.wait(address, timeout_seconds=0))

    def next_ones_agree(self) -> None:
        if self.model.policy.paused or self._overdue():
            return
        for group in self.model.groups:
            if any(self.model.is_due(key, place, self.now) for key, place in self.model.groups[group].items()):
                continue
            peeked = [message.payload for message in self.queue.peek(limit=1000, group=group)]
            assert peeked == self.model.ready(group, self.now), f"peek of {group}"

    def trails_agree(self) -> None:
        for key in sorted(self.touched):
            self._check_trail(key)
        self.touched.clear()

    def _check_trail(self, key: bytes) -> None:
        entries = self.queue.audit(self._id(key))
        assert [entry.at for entry in entries] == sorted(entry.at for entry in entries), f"audit of {key!r} is ordered"
        for group in self.model.groups:
            place, state = self.model.groups[group][key], None
            mine = [entry for entry in entries if entry.group in (None, group)]
            for entry in mine:
                assert is_legal(state, entry.event, entry.state), f"{key!r} in {group}: {state} {entry}"
                state = entry.state
            got = [(e.event, e.state) for e in mine if e.event is not Event.DUE]
            assert got == [(s.event, s.state) for s in place.trail], f"audit of {key!r} in {group}"
            attempts = [e.attempt for e in mine if e.event is Event.RECEIVE]
            assert attempts == [s.attempt for s in place.trail if s.event is Event.RECEIVE], f"attempts of {key!r}"

    # -- catching up with the clock --------------------------------------------------------------------------------

    def _overdue(self) -> list[tuple[str, bytes, tuple[Event, State]]]:
        steps = [(group, key, self.model.overdue(key, place, self.now)) for group, key, place in self.model.places()]
        found = [(group, key, step) for group, key, step in steps if step is not None]
        return sorted(found, key=lambda one: self.model.notes[one[1]].position or 0)

    def _catch_up(self, got: list[penstock.Delivery] | None = None) -> None:
        """Apply audit entries that time caused in the engine to the model, and learn positions and new ids."""
        progress = True
        while progress:
            progress = False
            self._learn_ids(got or [])
            self._learn_positions()
            for group, key, (event, state) in self._overdue():
                place = self.model.groups[group][key]
                due = self.model.overdue(key, place, self.now) == (event, state)
                if due and self._next_step(group, key, place) == (event, state):
                    self.model.pass_time(group, key, event, state, self.now)
                    self.touched.add(key)
                    progress = True
            self._take_cancellations()

    def _next_step(self, group: str, key: bytes, place: Place) -> tuple[Event, State] | None:
        """Audit entries of the engine that the model has not applied yet."""
        ahead = self._real_trail(group, key)[len(place.trail) :]
        return (ahead[0].event, ahead[0].state) if ahead else None

    def _real_trail(self, group: str, key: bytes) -> list[penstock.AuditEntry]:
        entries = self.queue.audit(self._id(key))
        return [one for one in entries if one.group in (None, group) and one.event is not Event.DUE]

    def _take_cancellations(self) -> None:
        """Batches follow the primary group; the effect of a cancellation on other groups is the engine's choice."""
        for group, key, place in self.model.places():
            cancelled = self.model.is_cancelled(key, place)
            if group == PRIMARY or not cancelled or place.state not in WAITING:
                continue
            if self._next_step(group, key, place) == (Event.BATCH_CANCEL, State.CANCELLED):
                self.model._end(group, key, place, Event.BATCH_CANCEL, State.CANCELLED, self.now)

    def _learn_ids(self, got: list[penstock.Delivery]) -> None:
        """The engine sends the end and abort messages of batches; their ids are found by their payloads."""
        unknown = [note for note in self.model.notes.values() if note.id is None]
        if unknown:
            # A group that never received could read the whole log; reads do not create it.
            seen = {message.payload: message.id for message in self.queue.peek(limit=1000, group="nobody")}
            seen |= {delivery.payload: delivery.id for delivery in got}
            for note in unknown:
                assert note.draft.key in seen, f"{note.draft.key!r} should have been sent"
                note.id = seen[note.draft.key]

    def _learn_positions(self) -> None:
        """The log's order is that of commits: whatever enters it now comes after all that was there before."""
        before = self.highest_position
        for key, note in self.model.notes.items():
            if note.position is None and (self.model.place(key).state is not State.HELD or self._is_due(key)):
                position = self.queue.find(self._id(key)).position
                assert position is None or position > before, f"{key!r} came into the log behind others"
                note.position = position
                self.highest_position = max(self.highest_position, position or 0)

    def _is_due(self, key: bytes) -> bool:
        return self.model.is_due(key, self.model.place(key), self.now)

    def _id(self, key: bytes) -> str:
        message_id = self.model.notes[key].id
        assert message_id is not None
        return message_id

    def _call(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except PenstockError as error:
            return error
