"""One random walk through every interface, each on its own store: every call must have the same result, and leave the
same counts behind."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock import NotFound, Queue
from tests.conformance.clock import Clock
from tests.laws.interfaces import Got, Refusal, Settling, WalkedInterface, counts
from tests.laws.served_interfaces import CODES
from tests.model.interface_sides import WalkSide

BATCHES = st.sampled_from(["nightly", "weekly"])
GROUPS = ("default", "billing")
READERS = st.sampled_from([None, "default", "default", "billing"])
RECENT = st.integers(0, 8)
DELAYS = st.sampled_from([None, 0, 7, 60])
VERBS = st.sampled_from(["ack", "nak", "nak", "reject", "reschedule"])
CHOICES = {
    "priority": st.integers(0, 2),
    "delay_seconds": st.sampled_from([0, 5, 40, -3]),
    "ttl_seconds": st.sampled_from([8, 45.5, 400]),
    "deadline_in": st.sampled_from([-5, 12, 90]),
    "key": st.sampled_from(["x", "y", "z"]),
    "headers": st.sampled_from([{}, {"trace": "a=b"}]),
    "created_by": st.just("the walk"),
}
ADDRESSES = {"address": st.sampled_from(["a", "b"])}
# A send with one of these may be refused, or be the send of before.
SINGLE = {
    **ADDRESSES,
    "id": st.integers(1, 5).map(lambda number: f"00000000-0000-4000-8000-00000000000{number}"),
    "batch": BATCHES,
}


def options_of(choices: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    one = st.one_of([st.tuples(st.just(name), values) for name, values in choices.items()])
    return st.lists(one, max_size=2, unique_by=lambda choice: choice[0]).map(dict)


class InterfaceMachine(RuleBasedStateMachine):
    sides: ClassVar[list[WalkSide]]
    clock: ClassVar[Clock]
    numbers: ClassVar[itertools.count[int]] = itertools.count(1)

    def __init__(self) -> None:
        super().__init__()
        self.queue = f"walk-{next(self.numbers)}"
        self.ordered = False
        self.sent = 0
        self.ids: list[list[str]] = []
        self.deliveries: list[list[Got]] = []

    def teardown(self) -> None:
        try:
            self.compare_trails()
        finally:
            for side in self.sides:
                queue = side.observer.queue(self.queue)
                for info in queue.consumers():
                    queue.register(info.name, group=info.group).deregister()
                queue.delete()

    @initialize(
        max_retries=st.sampled_from([0, 1, 2, None]),
        delivery=st.sampled_from(["at_least_once", "at_most_once"]),
        ordered=st.booleans(),
        items=st.lists(options_of(CHOICES), min_size=1, max_size=4),
    )
    def begin(self, max_retries: int | None, delivery: str, ordered: bool, items: list[dict[str, Any]]) -> None:
        self.ordered = ordered
        policy: dict[str, Any] = {
            "max_retries": max_retries, "delivery": delivery, "ordered": ordered, "shards": 2 if ordered else 1,
            "backoff_jitter_seconds": 0,
        }  # fmt: skip
        self._same("declare", lambda side: side.declare(self.queue, **policy))
        for side in self.sides:
            for group in GROUPS:
                # A consumer that is not registered begins at a random shard.
                side.observer.queue(self.queue).register("c1", group=group, heartbeat_seconds=1_000_000)
        self.send_many(items)

    # -- send ----------------------------------------------------------------------------------------------------------

    @rule(options=options_of(CHOICES | SINGLE))
    def send(self, options: dict[str, Any]) -> None:
        item = self._item(options)
        self._remember(self._answers(lambda side: [side.send(self.queue, **item)]), chosen="id" in item)

    @rule(items=st.lists(options_of(CHOICES), min_size=1, max_size=4))
    def send_many(self, items: list[dict[str, Any]]) -> None:
        drawn = [self._item(options) for options in items]
        self._remember(self._answers(lambda side: side.send_many(self.queue, drawn)), chosen=False)

    def _item(self, options: dict[str, Any]) -> dict[str, Any]:
        self.sent += 1
        item = {"payload": {"n": self.sent}, **options}
        if "deadline_in" in item:
            item["deadline_at"] = self.clock.now + timedelta(seconds=item.pop("deadline_in"))
        if self.ordered:
            # A message without a key goes to a random shard, and an end message has none.
            item = {"key": "x", **item}
            item.pop("batch", None)
        return item

    def _remember(self, answers: list[Any], chosen: bool) -> None:
        """Ids are made by the stores, unless they are chosen."""
        self._equal("send", [one if isinstance(one, str) or chosen else len(one) for one in answers])
        if not isinstance(answers[0], str):
            self.ids += [list(ids) for ids in zip(*answers, strict=True) if list(ids) not in self.ids]

    # -- receive and settle --------------------------------------------------------------------------------------------

    @rule(limit=st.integers(1, 4), group=READERS, lease=st.sampled_from([None, None, 3, 100.5]))
    def receive(self, limit: int, group: str | None, lease: float | None) -> None:
        options = {} if lease is None else {"lease_seconds": lease}
        answers = self._answers(lambda side: side.receive(self.queue, limit, group, **options))
        self._equal("receive", [[(one.payload, one.attempt, one.fields) for one in got] for got in answers])
        self.deliveries += [list(same) for same in zip(*answers, strict=True)]

    @precondition(lambda self: self.deliveries)
    @rule(which=RECENT, verb=VERBS, delay=DELAYS, reason=st.sampled_from([None, "why"]))
    def settle(self, which: int, verb: str, delay: float | None, reason: str | None) -> None:
        chosen, options = self._delivery(which), _options(verb, delay, reason)
        self._same_each("settle", lambda side, place: side.settle(self.queue, verb, chosen[place], **options))

    @precondition(lambda self: self.deliveries)
    @rule(plans=st.lists(st.tuples(RECENT, VERBS, DELAYS), min_size=1, max_size=4, unique_by=lambda plan: plan[0]))
    def settle_many(self, plans: list[tuple[int, str, float | None]]) -> None:
        # In the order of receiving, each delivery once: other orders depend on how many are settled at a time.
        drawn = {which % len(self.deliveries): (verb, delay) for which, verb, delay in plans}
        items = [(self._delivery(which), *drawn[which]) for which in sorted(drawn, reverse=True)]
        self._same_each(
            "settle_many",
            lambda side, place: side.settle_many(
                self.queue, [Settling(verb, same[place], _options(verb, delay, None)) for same, verb, delay in items]
            ),
        )

    @precondition(lambda self: self.deliveries)
    @rule(which=RECENT, seconds=st.sampled_from([1, 20.25, 200]))
    def extend(self, which: int, seconds: float) -> None:
        chosen = self._delivery(which)
        self._same_each("extend", lambda side, place: side.extend(self.queue, chosen[place], seconds))

    def _delivery(self, which: int) -> list[Got]:
        return self.deliveries[-1 - which % len(self.deliveries)]

    # -- batches, dead letters, groups and policies --------------------------------------------------------------------

    @precondition(lambda self: not self.ordered)
    @rule(name=BATCHES, verb=st.sampled_from(["start", "start", "cancel", "set_end", "set_abort"]))
    def batch(self, name: str, verb: str) -> None:
        self.sent += 1
        payload = self.sent if verb.startswith("set_") else None
        self._same(f"batch {verb}", lambda side: side.batch(self.queue, name, verb, payload))

    @precondition(lambda self: not self.ordered)
    @rule(name=BATCHES, options=options_of(CHOICES | ADDRESSES))
    def open_batch(self, name: str, options: dict[str, Any]) -> None:
        """A batch that has ended takes no more: the next one of its name is opened, by a new object in Python."""
        item = self._item(options)

        def send(side: WalkedInterface) -> list[str]:
            side.batch(self.queue, name, "open")
            return [side.send(self.queue, batch=name, **item)]

        self._remember(self._answers(send), chosen=False)

    @rule(verb=st.sampled_from(["redrive", "redrive", "purge"]))
    def use_letters(self, verb: str) -> None:
        self._same(verb, lambda side: getattr(side, verb)(self.queue))

    @rule(group=st.sampled_from(GROUPS), to=st.sampled_from(["start", "end", 3, 50]))
    def seek(self, group: str, to: str | int) -> None:
        place = to if isinstance(to, str) else self.clock.now - timedelta(seconds=to)
        self._same("seek", lambda side: side.seek(self.queue, group, place))

    @rule(limit=st.integers(1, 2))
    def receive_while_paused(self, limit: int) -> None:
        self._same("pause", lambda side: side.pause(self.queue))
        self.receive(limit, None, None)
        self._same("resume", lambda side: side.resume(self.queue))

    @rule(
        changes=st.fixed_dictionaries(
            {},
            optional={
                "max_retries": st.sampled_from([0, 3, None]),
                "lease_seconds": st.sampled_from([2, 30, 300]),
                "backoff_base_seconds": st.sampled_from([0, 1, 10]),
                "delay_seconds": st.sampled_from([0, 3]),
            },
        )
    )
    def change_policy(self, changes: dict[str, Any]) -> None:
        self._same("declare", lambda side: side.declare(self.queue, **changes))

    @precondition(lambda self: self.sent > 12)
    @rule()
    def flush(self) -> None:
        """QFLUSH removes the groups as well. Deliveries of removed messages are lost in Python, and not found where a
        message is named by its id."""
        for side in self.sides:
            (side.observer.queue(self.queue).flush() if side.name == "redis" else side.interface.flush(self.queue))
        self.ids.clear()
        self.deliveries.clear()

    # -- time ----------------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 7, 31, 61, 500]))
    def pass_time(self, seconds: int) -> None:
        self.clock.advance(seconds=seconds)
        self.sweep()

    @precondition(lambda self: self.deliveries)
    @rule(which=RECENT, early=st.booleans())
    def come_to_the_end_of_a_lease(self, which: int, early: bool) -> None:
        fields = self._delivery(which)[0].fields
        assert fields is not None
        ends: datetime = fields["lease_ends_at"] - timedelta(microseconds=early)
        if ends >= self.clock.now:
            self.clock.move_to(ends)

    @rule()
    def sweep(self) -> None:
        for side in self.sides:
            side.observer.sweep()

    # -- what must be equal --------------------------------------------------------------------------------------------

    @invariant()
    def counts_agree(self) -> None:
        self._equal(
            "counts",
            [
                {name: counts(one) for name, one in side.observer.queue(self.queue).stats().items()}
                for side in self.sides
            ],
        )

    @rule(group=st.sampled_from(GROUPS))
    def look(self, group: str) -> None:
        """Reads through the interfaces themselves."""
        stats = [answer for answer in self._answers(lambda side: side.stats(self.queue)) if answer is not None]
        assert all(one == stats[0] for one in stats), f"stats differ: {stats}"
        self._same("peek", lambda side: side.peek(self.queue, group))
        self._same("letters", lambda side: sorted(side.letters(self.queue, group), key=repr))

    def compare_trails(self) -> None:
        numbers = [self._numbers(at, side.observer.queue(self.queue)) for at, side in enumerate(self.sides)]
        for same in self.ids:
            answers = [
                _by_group(side.interface.trail(self.queue, same[at]), numbers[at]) for at, side in enumerate(self.sides)
            ]
            self._equal("trail", answers)

    def _numbers(self, at: int, queue: Queue) -> dict[int | None, int]:
        """Positions are the store's own: the numbers of messages by their positions."""
        numbers: dict[int | None, int] = {}
        for number, same in enumerate(self.ids):
            with suppress(NotFound):
                numbers[queue.find(same[at]).position] = number
        return numbers

    def _same(self, what: str, call: Callable[[WalkedInterface], Any]) -> None:
        self._equal(what, self._answers(call))

    def _same_each(self, what: str, call: Callable[[WalkedInterface, int], Any]) -> None:
        self._equal(what, [_answer(call, side.interface, at) for at, side in enumerate(self.sides)])

    def _answers(self, call: Callable[[WalkedInterface], Any]) -> list[Any]:
        return [_answer(call, side.interface) for side in self.sides]

    def _equal(self, what: str, answers: list[Any]) -> None:
        first = answers[0]
        for side, answer in zip(self.sides[1:], answers[1:], strict=True):
            expected = _as_told_by_redis(first) if side.name == "redis" else first
            assert answer == expected, f"{what} through {side.name}: {answer}\nthrough Python: {expected}"


def _answer(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except Refusal as refusal:
        return str(refusal)


def _as_told_by_redis(answer: Any) -> Any:
    """The Redis protocol has codes for some errors only."""
    is_other_error = isinstance(answer, str) and answer[:1].isupper() and answer not in CODES.values()
    return "ERR" if is_other_error else answer


def _options(verb: str, delay: float | None, reason: str | None) -> dict[str, Any]:
    """The Redis protocol has no reason for an ack."""
    options: dict[str, Any] = {} if verb == "ack" or reason is None else {"reason": reason}
    if verb == "reschedule":
        options["delay_seconds"] = delay or 0
    elif verb == "nak" and delay is not None:
        options["delay_seconds"] = delay
    return options


def _by_group(entries: list[Any], numbers: dict[int | None, int]) -> dict[str, list[Any]]:
    """In which order the groups of a queue are swept is the engine's choice. A reason that names a position names a
    message here."""

    def named(reason: str | None) -> str | None:
        return reason and re.sub(r"at position (\d+)", lambda found: f"number {numbers.get(int(found[1]))}", reason)

    shown = [(*one[:5], named(one[5]), *one[6:]) for one in entries]
    return {group: [one for one in shown if one[4] in (None, group)] for group in GROUPS}
