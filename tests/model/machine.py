"""The machine that walks a real store and the reference model side by side.

Every rule makes one call on the store, lets the model catch up with what the clock demanded meanwhile (`_catch_up`),
makes the same call on the model, and compares.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

import penstock
from penstock import Ack, Event, LeaseLost, Nak, OutOfOrder, PenstockError, Policy, Reject, Reschedule, State
from penstock.domain.timestamps import to_time
from penstock.domain.validation import from_time
from tests.model.comparison import Comparison
from tests.model.reference import PRIMARY, SECOND, Batch, Draft, Note

BATCHES = ("nightly", "weekly")
DELAYS = st.sampled_from([0, 0, 0, 5, 40, -3])
SETTLE_DELAYS = st.sampled_from([None, 0, 7, 60])
VERBS = st.sampled_from(["ack", "nak", "nak", "reject", "reschedule"])
READERS = st.sampled_from([PRIMARY, None, PRIMARY, "audit"])
RECENT = st.integers(0, 12)


CHOICES = {
    "priority": st.integers(0, 2),
    "delay_seconds": DELAYS,
    "ttl_seconds": st.sampled_from([8, 45, 400]),
    "deadline_in": st.sampled_from([-5, 12, 90]),
    "address": st.sampled_from(["a", "b", "c"]),
    "ordering_key": st.sampled_from(["x", "y"]),
    "id": st.integers(1, 6).map(lambda number: str(uuid.UUID(int=number))),
}
# Random options of a send, mostly one or two.
OPTIONS = st.lists(
    st.one_of([st.tuples(st.just(name), values) for name, values in CHOICES.items()]),
    max_size=2,
    unique_by=lambda choice: choice[0],
).map(dict)


class QueueMachine(Comparison):
    # -- send ------------------------------------------------------------------------------------------------------

    @initialize(
        items=st.lists(OPTIONS, min_size=2, max_size=6),
        max_retries=st.sampled_from([0, 1, 2, None]),
        delivery=st.sampled_from(["at_least_once", "at_most_once"]),
    )
    def begin(self, items: list[dict[str, Any]], max_retries: int | None, delivery: str) -> None:
        self.change_policy({"max_retries": max_retries, "delivery": delivery})
        self.send(items, None)

    @rule(items=st.lists(OPTIONS, min_size=1, max_size=4), batch=st.sampled_from([None, None, None, *BATCHES]))
    def send(self, items: list[dict[str, Any]], batch: str | None) -> None:
        drafts = [self._draft(item) for item in items]
        outgoing = [self._outgoing(draft) for draft in drafts]
        batch_info = self.model.batches.get(batch or "")
        if batch is not None:
            self._declared(batch, batch_info)
        real = self._call(
            lambda: self.queue.batch(batch).send_many(outgoing) if batch else self.queue.send_many(outgoing)
        )
        self._catch_up()
        if self._is_held_by_the_dead(drafts, real):
            return
        expected = self._call(lambda: self.model.send(drafts, batch, self.now))
        if isinstance(expected, PenstockError):
            assert type(real) is type(expected), f"{real!r}, and the model says {expected!r}"
            return
        assert isinstance(real, list), f"{real!r}, and the model sent {drafts}"
        for draft, message_id in zip(drafts, real, strict=True):
            self._note_id(draft, message_id)
        self._learn_positions()

    def _declared(self, name: str, batch: Batch | None) -> None:
        """Sometimes a batch gets its end message before its first member."""
        if batch is None or batch.ended:
            self.set_last_words(name)

    @rule(name=st.sampled_from(BATCHES))
    def set_last_words(self, name: str) -> None:
        batch = self.model.batches.get(name)
        if batch is not None and batch.state == "cancelling":
            return
        self.count += 1
        end, abort = f"end {name} {self.count}".encode(), f"abort {name} {self.count}".encode()
        self.queue.batch(name).set_end(end)
        self.queue.batch(name).set_abort(abort)
        self._catch_up()
        self.model.set_end(name, end, abort)

    # -- receive and settle ----------------------------------------------------------------------------------------

    @rule(limit=st.integers(1, 5), group=READERS, lease=st.sampled_from([None, 3, 100]))
    def receive(self, limit: int, group: str | None, lease: float | None) -> None:
        before = set(self.model.notes)
        got = self.queue.receive(limit=limit, group=group, consumer="c1", lease_seconds=lease)
        group = group or PRIMARY
        self.model.join(group)
        self._catch_up(got)
        if self.model.policy.paused:
            assert got == [], f"a paused queue handed out {got}"
            return
        # The end message of a batch that this receive ended may be returned by it or by the next one.
        new = set(self.model.notes) - before - {one.payload for one in got}
        expected = self.model.handed_out(group, limit, self.now, without=new)
        assert [one.payload for one in got] == expected, f"received by {group}, against the model"
        if got:
            self._check_token(got)
            self.model.receive(group, expected, got[0].token, lease, self.now)
        for delivery in got:
            self._check_delivery(delivery)
            self.deliveries.append((delivery, delivery.payload))
            self.touched.add(delivery.payload)

    @rule(plans=st.lists(st.tuples(VERBS, SETTLE_DELAYS), min_size=1, max_size=5), group=READERS)
    def work(self, plans: list[tuple[str, float | None]], group: str | None) -> None:
        """Receive and settle at once, the most common sequence."""
        before = len(self.deliveries)
        self.receive(limit=len(plans), group=group, lease=None)
        for which, (verb, delay) in zip(range(before, len(self.deliveries)), plans, strict=False):
            self.settle_one(len(self.deliveries) - 1 - which, verb, delay)

    @precondition(lambda self: self.deliveries)
    @rule(which=RECENT, verb=VERBS, delay=SETTLE_DELAYS)
    def settle_one(self, which: int, verb: str, delay: float | None) -> None:
        delivery, key = self._delivery(which)
        real = self._call(lambda: _settle(delivery, verb, delay))
        self._catch_up()
        expected = self._settle_model(delivery, key, verb, delay)
        if isinstance(expected, LeaseLost | OutOfOrder):
            assert type(real) is type(expected), f"a {verb} of {key!r} answered {real!r}, and the model {expected!r}"
        elif not self._is_old_repeat(delivery, key):
            assert real is None, f"{verb} of {key!r} answered {real!r}, and the model {expected}"

    @precondition(lambda self: self.deliveries)
    @rule(items=st.lists(st.tuples(RECENT, VERBS, SETTLE_DELAYS), max_size=5))
    def settle_many(self, items: list[tuple[int, str, float | None]]) -> None:
        chosen = [(*self._delivery(which), verb, delay) for which, verb, delay in items]
        results = self.queue.settle([_settlement(delivery, verb, delay) for delivery, _, verb, delay in chosen])
        self._catch_up()
        assert [result.id for result in results] == [delivery.id for delivery, *_ in chosen]
        # Settlements are gathered by group: the model must take them in the same order within a group, and does.
        answered = list(zip(chosen, results, strict=True))
        if self.model.policy.ordered and not self.model.policy.at_most_once:
            answered.sort(key=lambda one: one[0][0].position)
        for (delivery, key, verb, delay), result in answered:
            expected = self._settle_model(delivery, key, verb, delay)
            if isinstance(expected, LeaseLost | OutOfOrder):
                # A settlement refused as out of order is repeated after the others, which may have settled the same
                # message.
                is_named_twice = [one.id for one, *_ in chosen].count(delivery.id) > 1
                refusals = (LeaseLost, OutOfOrder) if is_named_twice else type(expected)
                assert isinstance(result.error, refusals), f"a {verb} of {key!r} answered {result}"
            elif not self._is_old_repeat(delivery, key):
                assert result.ok, f"{verb} of {key!r} answered {result}, and the model {expected}"
                assert result.state == expected, f"{verb} of {key!r}"

    @precondition(lambda self: self.deliveries)
    @rule(which=RECENT)
    def ack_many(self, which: int) -> None:
        """Ack a whole receive: the fast path must equal single acks."""
        token = self._delivery(which)[0].token
        chosen = [(one, key) for one, key in self.deliveries if one.token == token]
        real = self._call(lambda: self.queue.ack_many([one for one, _ in chosen]))
        self._catch_up()
        expected = [self._settle_model(one, key, "ack", None) for one, key in chosen]
        if any(isinstance(answer, LeaseLost | OutOfOrder) for answer in expected):
            assert isinstance(real, LeaseLost | OutOfOrder), f"ack_many of lost leases answered {real!r}"
        else:
            assert real == len(chosen), f"ack_many answered {real!r}"

    @precondition(lambda self: self.deliveries)
    @rule(which=RECENT, seconds=st.sampled_from([1, 20, 200]))
    def extend(self, which: int, seconds: float) -> None:
        delivery, key = self._delivery(which)
        real = self._call(lambda: delivery.extend(seconds))
        self._catch_up()
        expected = self._call(lambda: self.model.extend(delivery.group, key, delivery.token, seconds, self.now))
        if isinstance(expected, LeaseLost):
            assert isinstance(real, LeaseLost), f"a stale extend of {key!r} answered {real!r}"
        else:
            assert real == to_time(expected), f"extend of {key!r}"

    # -- batches ---------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(BATCHES), verb=st.sampled_from(["start", "start", "cancel"]))
    def move_batch(self, name: str, verb: str) -> None:
        if name not in self.model.batches:
            return
        batch = self.queue.batch(name)
        info = batch.start() if verb == "start" else batch.cancel()
        self._catch_up()
        self.touched |= set(self.model.batches[name].members)
        if verb == "start":
            self.model.start(name, self.now)
        else:
            self.model.cancel(name, self.now)
        assert info.state == self.model.batches[name].state

    # -- dead letters, and the whole queue -------------------------------------------------------------------------

    @rule(group=READERS, verb=st.sampled_from(["redrive", "redrive", "purge"]), how_many=st.integers(1, 4))
    def use_letters(self, group: str | None, verb: str, how_many: int) -> None:
        self._catch_up()
        group = group or PRIMARY
        keys = [key for key in self.model.letters(group) if self._is_certain(key, group)][:how_many]
        ids = [self._id(key) for key in keys]
        if not ids:
            return
        count = (self.queue.redrive if verb == "redrive" else self.queue.purge)(ids, group=group)
        if verb == "redrive":
            keys = [key for key in keys if group != PRIMARY or self._gets_its_address(key)]
            self.model.redrive(group, keys, self.now)
        else:
            self.model.purge(group, keys)
            self.forgotten |= set(ids)
        assert count == len(keys), f"{verb} of {keys}"
        self.touched |= set(keys)

    def _gets_its_address(self, key: bytes) -> bool:
        """A redriven message gets its address back, unless another live message has it."""
        holder = self.model.holder(self.model.notes[key].draft.address, self.now)
        return holder is None or holder == key

    def _is_certain(self, key: bytes, group: str) -> bool:
        """Excludes messages whose address is contended, or held by an expired message that was not swept yet."""
        address = self.model.notes[key].draft.address
        if address is not None and group == PRIMARY:
            takers = [one for one in self.model.letters(group) if self.model.notes[one].draft.address == address]
            overdue = {one for _, one, _ in self._overdue()}
            if len(takers) > 1 or self.model.addresses[address] in overdue:
                return False
        # The position of a redriven message among unread ones is unspecified for ordered queues.
        trail = self.model.groups[group][key].trail
        return not self.ordered or any(step.event is Event.RECEIVE for step in trail)

    @rule(
        changes=st.fixed_dictionaries(
            {},
            optional={
                "max_retries": st.sampled_from([0, 1, 3, None]),
                "delivery": st.sampled_from(["at_least_once", "at_most_once"]),
                "lease_seconds": st.sampled_from([2, 30, 300]),
                "backoff_base_seconds": st.sampled_from([0, 1, 10]),
            },
        )
    )
    def change_policy_on_the_way(self, changes: dict[str, Any]) -> None:
        if self.ordered:
            changes.pop("delivery", None)  # an open lease on several messages was granted under the other delivery mode
        self.change_policy(changes)

    def change_policy(self, changes: dict[str, Any]) -> None:
        self.store.queue("orders", **changes)
        self._catch_up()
        self.model.policy = Policy(**{**_fields(self.model.policy), **changes})
        assert self.queue.policy() == self.model.policy

    @rule(group=READERS)
    def pause_for_a_moment(self, group: str | None) -> None:
        self._pause(self.queue.pause, paused=True)
        self.receive(limit=5, group=group, lease=None)
        self.all_agree()
        self._pause(self.queue.resume, paused=False)

    def _pause(self, verb: Callable[[], None], paused: bool) -> None:
        verb()
        self._catch_up()
        self.model.policy = Policy(**{**_fields(self.model.policy), "paused": paused})

    @precondition(lambda self: len(self.model.notes) > 15)
    @rule()
    def flush(self) -> None:
        self._catch_up()
        self.queue.flush()
        self.deliveries = [(delivery, None) for delivery, _ in self.deliveries]
        self.touched.clear()
        self.model.clear()
        assert self.queue.receive(limit=100) == []
        assert self.queue.dead_letters() == []
        # Whether groups are removed too is the engine's choice: nothing observable is left.
        for group in self.queue.stats():
            self.model.join(group)

    # -- time ------------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 7, 30, 61, 500]))
    def let_time_pass(self, seconds: int) -> None:
        self.now += seconds * SECOND

    @rule(early=st.booleans(), which=st.integers(0, 3))
    def go_to_a_moment(self, early: bool, which: int) -> None:
        """Advance to the time of an event or a microsecond before it: most errors are at the edges."""
        moments = self.model.moments(self.now)
        if moments:
            self.now = moments[min(which, len(moments) - 1)] - early

    @precondition(lambda self: self.deliveries)
    @rule(which=RECENT, early=st.booleans(), then=st.sampled_from(["settle", "extend", "receive"]), verb=VERBS)
    def come_to_the_end_of_a_lease(self, which: int, early: bool, then: str, verb: str) -> None:
        """Settle, extend or take over at such a time, or a microsecond before it."""
        delivery, key = self._delivery(which)
        place = None if key is None else self.model.groups[delivery.group][key]
        if place is None or place.state is not State.LEASED or place.lease_ends_at - early < self.now:
            return
        self.now = place.lease_ends_at - early
        if then == "settle":
            self.settle_one(which, verb, None)
        elif then == "extend":
            self.extend(which, 20)
        else:
            self.receive(limit=5, group=delivery.group, lease=None)

    @rule()
    def sweep(self) -> None:
        self.store.sweep()
        self._catch_up()
        left = [(group, key, step) for group, key, step in self._overdue()]
        assert not left, f"a sweep left undone: {left}"
        self.touched |= set(self.model.notes)
        again = self.store.sweep()
        assert (again.reclaimed, again.promoted, again.expired) == (0, 0, 0), f"a second sweep found more: {again}"
        for _, key, place in self.model.places():
            if self.model.is_due(key, place, self.now):
                place.state = State.READY

    # -- small steps -----------------------------------------------------------------------------------------------

    def _draft(self, item: dict[str, Any]) -> Draft:
        self.count += 1
        deadline = item.pop("deadline_in", None)
        if item.get("id") in self.forgotten:
            del item["id"]
        if self.ordered:
            item.pop("priority", None)  # keys in order and better priorities first contradict each other
        at = None if deadline is None else self.now + deadline * SECOND
        return Draft(f"m{self.count}".encode(), deadline_at=at, **item)

    def _outgoing(self, draft: Draft) -> penstock.Outgoing:
        return penstock.Outgoing(
            payload=draft.key,
            priority=draft.priority,
            delay_seconds=draft.delay_seconds,
            ttl_seconds=draft.ttl_seconds,
            deadline_at=None if draft.deadline_at is None else to_time(draft.deadline_at),
            address=draft.address,
            key=draft.ordering_key,
            id=draft.id,
        )

    def _note_id(self, draft: Draft, message_id: str) -> None:
        key = self.model.ids.get(draft.id or "", draft.key)
        note: Note = self.model.notes[key]
        assert note.id in (None, message_id)
        assert draft.id in (None, message_id)
        note.id = message_id
        self.touched.add(key)

    def _is_held_by_the_dead(self, drafts: list[Draft], real: object) -> bool:
        """The address of an expired message may be refused until the message was swept."""
        if not isinstance(real, penstock.DuplicateAddress):
            return False
        overdue = {key for group, key, _ in self._overdue() if group == PRIMARY}
        return any(self.model.addresses.get(draft.address or "") in overdue for draft in drafts)

    def _delivery(self, which: int) -> tuple[penstock.Delivery, bytes | None]:
        """A recent one is likelier to be current than an old one."""
        return self.deliveries[-1 - which % len(self.deliveries)]

    def _settle_model(self, delivery: penstock.Delivery, key: bytes | None, verb: str, delay: float | None) -> Any:
        if key is not None:
            self.touched.add(key)
        if verb == "reschedule":
            delay = delay or 0
        event = Event(verb)
        return self._call(lambda: self.model.settle(delivery.group, key, delivery.token, event, delay, self.now))

    def _is_old_repeat(self, delivery: penstock.Delivery, key: bytes | None) -> bool:
        """A repeated settlement after the message went on is harmless: ok or LeaseLost."""
        if key is None:
            return False
        place = self.model.groups[delivery.group][key]
        settled = place.settled.get(delivery.token)
        return settled is not None and (place.token != delivery.token or place.state != settled[1])

    def _check_token(self, got: list[penstock.Delivery]) -> None:
        assert len({delivery.token for delivery in got}) == 1
        assert got[0].token > self.highest_token, "tokens grow"
        self.highest_token = got[0].token

    def _check_delivery(self, delivery: penstock.Delivery) -> None:
        note = self.model.notes[delivery.payload]
        place = self.model.groups[delivery.group][delivery.payload]
        real = (delivery.attempt, from_time("end", delivery.lease_ends_at), delivery.priority, delivery.id)
        assert real == (place.attempt, place.lease_ends_at, note.draft.priority, note.id), f"delivery of {delivery}"
        assert (delivery.address, delivery.key) == (note.draft.address, note.draft.ordering_key)
        assert delivery.batch == (note.batch.name if note.batch else note.last_word_of)
        assert delivery.created_at == to_time(note.created_at)
        times = (place.expires_at, place.deadline_at)
        assert (delivery.expires_at, delivery.deadline_at) == tuple(None if t is None else to_time(t) for t in times)


def _settle(delivery: penstock.Delivery, verb: str, delay: float | None) -> None:
    if verb == "ack":
        delivery.ack()
    elif verb == "nak":
        delivery.nak("again", delay_seconds=delay)
    elif verb == "reject":
        delivery.reject("never")
    else:
        delivery.reschedule(delay or 0, "later")


def _settlement(delivery: penstock.Delivery, verb: str, delay: float | None) -> Ack | Nak | Reject | Reschedule:
    if verb == "ack":
        return Ack(delivery)
    if verb == "nak":
        return Nak(delivery, "again", delay)
    if verb == "reject":
        return Reject(delivery, "never")
    return Reschedule(delivery, delay or 0, "later")


def _fields(policy: Policy) -> dict[str, Any]:
    return {name: getattr(policy, name) for name in policy.__struct_fields__}
