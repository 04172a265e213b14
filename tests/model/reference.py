"""One queue as plain Python objects, written from the design and not from any engine. Slow and obvious on purpose.

A `Note` is a message; a `Place` is that message in one group. The engine may notice the passing of time late (a lapsed
lease, an expiry: at the next receive or sweep), so the model tells what is `overdue`, and the machine applies it when
the engine has written it down.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock import BatchClosed, DuplicateAddress, Event, LeaseLost, OutOfOrder, Policy, State
from penstock.domain.lifecycle import DEAD_OUTCOMES, LIVE

SECOND = 1_000_000
PRIMARY = "default"
WAITING = (State.HELD, State.READY)


def micro(seconds: float) -> int:
    return round(seconds * SECOND)


@dataclass
class Draft:
    """The options of a send."""

    key: bytes
    priority: int = 0
    delay_seconds: float = 0
    ttl_seconds: float | None = None
    deadline_at: int | None = None
    address: str | None = None
    ordering_key: str | None = None
    id: str | None = None


@dataclass
class Step:
    event: Event
    state: State
    attempt: int


@dataclass
class Note:
    draft: Draft
    created_at: int
    available_at: int
    expires_at: int | None
    batch: Batch | None = None
    # The batch of which it is the end or abort message, without being a member.
    last_word_of: str | None = None
    id: str | None = None
    position: int | None = None
    # Events before the message was in the log, which apply to every group, also to later ones.
    shared: list[Step] = field(default_factory=list)


@dataclass
class Place:
    state: State
    due_at: int
    expires_at: int | None
    deadline_at: int | None
    attempt: int = 0
    again: bool = False
    token: int = -1
    lease_ends_at: int = 0
    settled: dict[int, tuple[Event, State]] = field(default_factory=dict)
    reason: str | None = None
    letter: bool = False
    redriven: bool = False
    trail: list[Step] = field(default_factory=list)

    def step(self, event: Event, state: State) -> None:
        self.state = state
        self.trail.append(Step(event, state, self.attempt))


@dataclass
class Batch:
    name: str
    state: str = "open"
    members: list[bytes] = field(default_factory=list)
    # Members that have ended once: a redriven one does not return to its batch.
    gone: set[bytes] = field(default_factory=set)
    end: bytes | None = None
    abort: bytes | None = None

    @property
    def ended(self) -> bool:
        return self.state in ("finished", "cancelled")


class Model:
    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.clear()

    def clear(self) -> None:
        self.notes: dict[bytes, Note] = {}
        self.groups: dict[str, dict[bytes, Place]] = {}
        self.batches: dict[str, Batch] = {}
        self.addresses: dict[str, bytes] = {}
        self.ids: dict[str, bytes] = {}

    # -- send ------------------------------------------------------------------------------------------------------

    def send(self, drafts: list[Draft], batch_name: str | None, now: int) -> None:
        """All of them or none."""
        fresh = self._fresh(drafts)
        batch = self._open_batch(batch_name) if batch_name is not None and fresh else None
        self._check_addresses(fresh, now)
        for draft in fresh:
            self._add(draft, batch, now)

    def holder(self, address: str | None, now: int) -> bytes | None:
        """The live message of an address, by the primary group; one that the clock has ended is not live."""
        key = self.addresses.get(address or "")
        if key is None or self.place(key).state not in LIVE:
            return None
        overdue = self.overdue(key, self.place(key), now)
        return key if overdue is None or overdue[1] in LIVE else None

    def _fresh(self, drafts: list[Draft]) -> list[Draft]:
        fresh: list[Draft] = []
        for draft in drafts:
            if draft.id is None or (draft.id not in self.ids and draft.id not in [one.id for one in fresh]):
                fresh.append(draft)
        return fresh

    def _check_addresses(self, drafts: list[Draft], now: int) -> None:
        taken: set[str] = set()
        for draft in drafts:
            if draft.address is not None:
                if draft.address in taken or self.holder(draft.address, now) is not None:
                    raise DuplicateAddress("address is live", "")
                taken.add(draft.address)

    def _add(self, draft: Draft, batch: Batch | None, now: int) -> None:
        available_at = now + micro(max(0, draft.delay_seconds))
        expires_at = None if draft.ttl_seconds is None else now + micro(draft.ttl_seconds)
        note = Note(draft, now, available_at, expires_at, batch)
        held = available_at > now or (batch is not None and batch.state == "open")
        note.shared.append(Step(Event.SEND, State.HELD if held else State.READY, 0))
        self.notes[draft.key] = note
        self.groups.setdefault(PRIMARY, {})
        for places in self.groups.values():
            places[draft.key] = self._first_place(note)
        if batch is not None:
            batch.members.append(draft.key)
        if draft.address is not None:
            self.addresses[draft.address] = draft.key
        if draft.id is not None:
            self.ids[draft.id] = draft.key

    def _first_place(self, note: Note) -> Place:
        last = note.shared[-1].state
        place = Place(last, note.available_at, note.expires_at, note.draft.deadline_at, trail=list(note.shared))
        return place

    # -- receive ---------------------------------------------------------------------------------------------------

    def join(self, group: str) -> None:
        """A group exists from its first receive, and starts at the oldest message."""
        if group not in self.groups:
            self.groups[group] = {key: self._first_place(note) for key, note in self.notes.items()}

    def ready(self, group: str, now: int) -> list[bytes]:
        """The messages that receives would return, in order. Due messages count as ready, overdue ones do not."""
        places = self.groups[group]
        keys = [key for key, place in places.items() if self._is_ready(key, place, now)]
        keys = [key for key in keys if not self.in_limbo(group, key)]
        if self.policy.ordered:
            keys = self._unblocked(places, keys)
        return sorted(keys, key=lambda key: self._order(key, places[key]))

    def handed_out(self, group: str, limit: int, now: int, without: set[bytes]) -> list[bytes]:
        """The result of a receive. Ordered at_most_once queues return one message, so that none is released because of
        another."""
        ready = [key for key in self.ready(group, now) if key not in without]
        return ready[: 1 if self.policy.ordered and self.policy.at_most_once else limit]

    def in_limbo(self, group: str, key: bytes) -> bool:
        """Cancelled with its batch in the primary group, and not yet passed by this group."""
        place = self.groups[group][key]
        unread = place.state in WAITING and not place.again
        return group != PRIMARY and unread and self.is_cancelled(key, place)

    def _is_ready(self, key: bytes, place: Place, now: int) -> bool:
        if self.overdue(key, place, now) is not None:
            return False
        return place.state is State.READY or (place.state is State.HELD and self.is_due(key, place, now))

    def _unblocked(self, places: dict[bytes, Place], keys: list[bytes]) -> list[bytes]:
        """Ordered, with one shard: nothing while something is leased, nothing behind a retry that waits."""
        if any(place.state is State.LEASED for place in places.values()):
            return []
        waiting = [
            key for key, place in places.items() if place.state is State.HELD and place.again and key not in keys
        ]
        first = min((self._order(key, places[key]) for key in waiting), default=None)
        return [key for key in keys if first is None or self._order(key, places[key]) < first]

    def is_due(self, key: bytes, place: Place, now: int) -> bool:
        batch = self.notes[key].batch
        unstarted = batch is not None and batch.state == "open" and not place.again
        return place.state is State.HELD and not unstarted and place.due_at <= now

    def _order(self, key: bytes, place: Place) -> tuple[int, bool, int]:
        """Lower priority number first, then what is tried again, then the order in which sends committed."""
        return (self.notes[key].draft.priority, not place.again, self._position(key))

    def _position(self, key: bytes) -> int:
        position = self.notes[key].position
        assert position is not None, f"{key!r} is ready and not in the log"
        return position

    def receive(self, group: str, keys: list[bytes], token: int, lease_seconds: float | None, now: int) -> None:
        for key in keys:
            place = self.groups[group][key]
            place.attempt += 1
            place.token = token
            place.again = True
            place.lease_ends_at = self._lease_end(place, now, lease_seconds or self.policy.lease_seconds)
            place.step(Event.RECEIVE, State.LEASED)

    def _lease_end(self, place: Place, now: int, seconds: float) -> int:
        end = now + micro(seconds)
        ahead = [limit for limit in (place.expires_at, place.deadline_at) if limit is not None and limit > now]
        return min([end, *ahead])

    # -- what time does --------------------------------------------------------------------------------------------

    def overdue(self, key: bytes, place: Place, now: int) -> tuple[Event, State] | None:
        """The transition that is due by time, apart from becoming ready."""
        expired = place.expires_at is not None and place.expires_at <= now
        late = self.policy.at_most_once and place.deadline_at is not None and place.deadline_at <= now
        if place.state in WAITING or (place.state is State.LEASED and place.lease_ends_at <= now):
            if expired:
                return Event.EXPIRE, State.EXPIRED
            if late:
                return Event.DEADLINE, State.EXPIRED
        if place.state is not State.LEASED or place.lease_ends_at > now:
            return None
        if self.policy.at_most_once:
            return Event.LEASE_END, State.LEASE_EXPIRED
        if not self._has_retries(place):
            return Event.LEASE_END, State.FAILED
        return Event.LEASE_END, State.CANCELLED if self.is_cancelled(key, place) else State.READY

    def pass_time(self, group: str, key: bytes, event: Event, state: State, now: int) -> None:
        """Apply an overdue step. What ends before it reached the log ends in every group, also in later ones."""
        note, place = self.notes[key], self.groups[group][key]
        if note.position is None and place.state is State.HELD and not place.again:
            note.shared.append(Step(event, state, 0))
            for name, places in self.groups.items():
                self._end(name, key, places[key], event, state, now)
        elif state is State.READY:
            place.due_at = now
            place.step(event, state)
            self._release(group, place, now, current=True, lapsed=True)
        else:
            was_leased = place.state is State.LEASED
            self._end(group, key, place, event, state, now)
            if was_leased:
                self._release(group, place, now, current=False, lapsed=True)

    # -- settle ----------------------------------------------------------------------------------------------------

    def settle(self, group: str, key: bytes | None, token: int, event: Event, delay: float | None, now: int) -> State:
        if key is None:
            raise LeaseLost("the message was flushed")
        place = self.groups[group][key]
        before = place.settled.get(token)
        if before is not None and before[0] is event:
            return before[1]
        if not self.is_held_by(place, token, now):
            raise LeaseLost("stale")
        state, delay = self._verdict(key, place, event, delay, now)
        if state not in (*WAITING, State.CANCELLED) and self._is_behind_another(group, place):
            raise OutOfOrder("one before it is in flight")
        if event is Event.RESCHEDULE:
            place.attempt = 0 if state in WAITING else place.attempt
            if place.expires_at is not None and state in WAITING:
                place.expires_at += micro(delay)
        place.settled[token] = (event, state)
        if state in WAITING:
            place.due_at = now + micro(delay)
            place.step(event, state)
            self._release(group, place, now, current=True, lapsed=False)
        else:
            self._end(group, key, place, event, state, now)
        return state

    def _is_behind_another(self, group: str, own: Place) -> bool:
        """Ordered, with one shard and one priority: whether one before it in the same lease is in flight."""
        if not self.policy.ordered or self.policy.at_most_once:
            return False
        places = self.groups[group]
        at = next(self._position(key) for key, place in places.items() if place is own)
        return any(
            place.state is State.LEASED and place.token == own.token and self._position(key) < at
            for key, place in places.items()
        )

    def is_held_by(self, place: Place, token: int, now: int) -> bool:
        """A lease that ended at the deadline is valid until the message was reclaimed."""
        if place.state is not State.LEASED or place.token != token:
            return False
        is_over = place.expires_at is not None and place.expires_at <= now
        return now < place.lease_ends_at or (place.lease_ends_at == place.deadline_at and not is_over)

    def _verdict(self, key: bytes, place: Place, event: Event, delay: float | None, now: int) -> tuple[State, float]:
        if event is Event.ACK:
            return State.SUCCEEDED, 0
        if event is Event.REJECT:
            return State.REJECTED, 0
        if event is Event.NAK:
            late = self.policy.at_most_once and place.deadline_at is not None and place.deadline_at <= now
            if late or not self._has_retries(place):
                return State.FAILED, 0
            delay = self._backoff(place) if delay is None else delay
        delay = max(0, delay or 0)
        if self.is_cancelled(key, place):
            return State.CANCELLED, delay
        return State.HELD if delay else State.READY, delay

    def _has_retries(self, place: Place) -> bool:
        return self.policy.max_retries is None or place.attempt <= self.policy.max_retries

    def _backoff(self, place: Place) -> float:
        """Without its random part: the machine's policy has none."""
        policy = self.policy
        grown: float = policy.backoff_base_seconds * policy.backoff_factor ** (place.attempt - 1)
        return min(grown, policy.backoff_max_seconds)

    def _release(self, group: str, first: Place, now: int, current: bool, lapsed: bool) -> None:
        """Ordered: what was handed out behind a message that is tried again goes back, and does not count. The same
        when a whole lease lapses: its consumer was at work on the first message, the others did not fail with it."""
        if not self.policy.ordered:
            return
        places = self.groups[group]
        at = next(self._position(key) for key, place in places.items() if place is first)
        for key, place in list(places.items()):  # a batch that it ends sends its end message
            behind = place.token == first.token and self._position(key) > at
            wanted = (lapsed and place.lease_ends_at <= now) or (current and self.is_held_by(place, first.token, now))
            if place.state is State.LEASED and behind and wanted:
                if self.is_cancelled(key, place):
                    self._end(group, key, place, Event.RELEASE, State.CANCELLED, now)
                else:
                    place.attempt -= 1
                    place.due_at = now
                    place.step(Event.RELEASE, State.READY)

    def extend(self, group: str, key: bytes | None, token: int, seconds: float, now: int) -> int:
        if key is None or not self.is_held_by(self.groups[group][key], token, now):
            raise LeaseLost("stale")
        place = self.groups[group][key]
        # A lease is only extended, and not beyond a deadline that ended it.
        if place.lease_ends_at > now:
            place.lease_ends_at = max(place.lease_ends_at, self._lease_end(place, now, seconds))
        return place.lease_ends_at

    def _end(self, group: str, key: bytes, place: Place, event: Event, state: State, now: int) -> None:
        unread = place.state in WAITING and not place.again
        place.step(event, state)
        place.letter = state in DEAD_OUTCOMES and (group == PRIMARY or not unread)
        batch = self.notes[key].batch
        if group == PRIMARY and batch is not None:
            batch.gone.add(key)
            self._close_batch(batch, now)

    # -- batches ---------------------------------------------------------------------------------------------------

    def _open_batch(self, name: str) -> Batch:
        batch = self.batches.get(name)
        if batch is None or batch.ended:
            batch = self.batches[name] = Batch(name)
        if batch.state == "cancelling":
            raise BatchClosed(f"batch {name} was cancelled")
        return batch

    def set_end(self, name: str, end: bytes | None, abort: bytes | None) -> None:
        batch = self._open_batch(name)
        batch.end = end or batch.end
        batch.abort = abort or batch.abort

    def start(self, name: str, now: int) -> None:
        batch = self.batches[name]
        if batch.state != "open":
            return
        batch.state = "running"
        for key in batch.members:
            note = self.notes[key]
            if self.place(key).state is State.HELD and note.available_at <= now:
                note.shared.append(Step(Event.BATCH_START, State.READY, 0))
                for places in self.groups.values():
                    places[key].step(Event.BATCH_START, State.READY)
        self._close_batch(batch, now)

    def cancel(self, name: str, now: int) -> None:
        batch = self.batches[name]
        if batch.state not in ("open", "running"):
            return
        batch.state = "cancelling"
        for key in batch.members:
            self._cancel_member(key, now)
        self._close_batch(batch, now)

    def _cancel_member(self, key: bytes, now: int) -> None:
        if self.place(key).state not in WAITING or self.place(key).redriven:
            return
        if self.notes[key].position is None:
            self.pass_time(PRIMARY, key, Event.BATCH_CANCEL, State.CANCELLED, now)
        else:
            self._end(PRIMARY, key, self.place(key), Event.BATCH_CANCEL, State.CANCELLED, now)

    def remaining(self, batch: Batch) -> int:
        return len(batch.members) - len(batch.gone)

    def _close_batch(self, batch: Batch, now: int) -> None:
        if batch.state not in ("running", "cancelling") or self.remaining(batch):
            return
        last_word = batch.end if batch.state == "running" else batch.abort
        batch.state = "finished" if batch.state == "running" else "cancelled"
        if last_word is not None:
            self._add(Draft(last_word), None, now)
            self.notes[last_word].last_word_of = batch.name

    def is_cancelled(self, key: bytes, place: Place) -> bool:
        batch = self.notes[key].batch
        return batch is not None and not place.redriven and batch.state in ("cancelling", "cancelled")

    # -- dead letters ----------------------------------------------------------------------------------------------

    def letters(self, group: str) -> list[bytes]:
        return [key for key, place in self.groups.get(group, {}).items() if place.letter]

    def redrive(self, group: str, keys: list[bytes], now: int) -> int:
        for key in keys:
            note, place = self.notes[key], self.groups[group][key]
            moved = now - note.created_at
            place.expires_at = None if note.expires_at is None else note.expires_at + moved
            place.deadline_at = None if note.draft.deadline_at is None else note.draft.deadline_at + moved
            place.attempt, place.due_at, place.again, place.letter, place.redriven = 0, now, True, False, True
            place.step(Event.REDRIVE, State.READY)
            if group == PRIMARY and note.draft.address is not None:
                self.addresses[note.draft.address] = key
        return len(keys)

    def purge(self, group: str, keys: list[bytes]) -> int:
        for key in keys:
            self.groups[group][key].letter = False
        return len(keys)

    # -- inspection ------------------------------------------------------------------------------------------------

    def place(self, key: bytes) -> Place:
        return self.groups[PRIMARY][key]

    def places(self) -> Iterator[tuple[str, bytes, Place]]:
        for group, places in self.groups.items():
            for key, place in places.items():
                yield group, key, place

    def counts(self, group: str) -> dict[str, int]:
        places = list(self.groups[group].values())
        ready = [place for place in places if place.state is State.READY]
        counts = {
            "held": sum(place.state is State.HELD for place in places),
            "available": sum(not place.again for place in ready),
            "redo": sum(place.again for place in ready),
            "in_progress": sum(place.state is State.LEASED for place in places),
            "done": sum(place.state is State.SUCCEEDED for place in places),
            "dead": sum(place.letter for place in places),
        }
        return counts | {"total": sum(counts.values())}

    def outcomes(self, group: str) -> dict[str, int]:
        ended = [place.state for place in self.groups[group].values() if place.state not in LIVE]
        return {str(state): ended.count(state) for state in set(ended)}

    def moments(self, now: int) -> list[int]:
        """Future times at which something happens by itself."""
        times = set()
        for _, _, place in self.places():
            if place.state is State.LEASED:
                times.add(place.lease_ends_at)
            if place.state is State.HELD:
                times.add(place.due_at)
            if place.state in LIVE:
                times |= {limit for limit in (place.expires_at, place.deadline_at) if limit is not None}
        return sorted(time for time in times if time > now)
