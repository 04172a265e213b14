"""Ordered queues whose messages have priorities: what was handed out is retried before anything overtakes it."""

from __future__ import annotations

from random import Random

import pytest

from penstock import LeaseLost, Outgoing, OutOfOrder, Queue, Store
from tests.conformance.assertions import payloads, take, take_all
from tests.conformance.clock import Clock
from tests.conformance.conftest import POLICY
from tests.seeds import choose_seed


@pytest.fixture
def line(store: Store) -> Queue:
    return store.queue("line", **{**POLICY, "ordered": True, "shards": 1})


@pytest.fixture
def pair(line: Queue) -> Queue:
    """A line with a message of a worse priority before one of a better priority."""
    line.send_many([Outgoing(payload="later", priority=1), Outgoing(payload="sooner", priority=0)])
    return line


def test_a_nak_takes_back_what_comes_behind_it_though_it_was_sent_before_it(pair: Queue, clock: Clock) -> None:
    sooner, later = take_all(pair)
    sooner.nak("busy", delay_seconds=19)
    with pytest.raises(LeaseLost):
        later.ack()
    assert pair.receive() == []
    clock.advance(seconds=20)
    assert [(one.json(), one.attempt) for one in take_all(pair)] == [("sooner", 2), ("later", 1)]


def test_a_nak_leaves_what_comes_before_it_though_it_was_sent_behind_it(pair: Queue) -> None:
    sooner, later = take_all(pair)
    later.nak("busy", delay_seconds=0)
    sooner.ack()
    assert payloads(take_all(pair)) == ["later"]


def test_retries_come_again_in_the_order_in_which_they_were_handed_out(pair: Queue) -> None:
    sooner, later = take_all(pair)
    later.nak("busy", delay_seconds=0)
    sooner.nak("busy", delay_seconds=0)
    assert payloads(take_all(pair)) == ["sooner", "later"]


def test_a_worse_priority_waits_for_the_retry_of_a_better_one_that_was_sent_later(pair: Queue, clock: Clock) -> None:
    take(pair).nak("busy", delay_seconds=19)
    assert pair.receive() == []
    assert pair.peek() == []
    clock.advance(seconds=20)
    assert payloads(take_all(pair)) == ["sooner", "later"]


def test_a_better_priority_waits_for_the_retry_of_a_worse_one_that_was_handed_out(line: Queue, clock: Clock) -> None:
    line.send("usual", priority=5)
    take(line).nak("busy", delay_seconds=19)
    line.send_many([Outgoing(payload="urgent", priority=0), Outgoing(payload="usual, too", priority=5)])
    assert line.receive() == []
    clock.advance(seconds=20)
    retried = take_all(line)
    assert payloads(retried) == ["usual"], "what is new comes by priority, after the retry"
    line.ack_many(retried)
    assert payloads(take_all(line)) == ["urgent", "usual, too"]


def test_of_a_lapsed_lease_the_message_that_was_handed_out_first_has_failed(pair: Queue, clock: Clock) -> None:
    take_all(pair)
    clock.advance(seconds=38)
    assert [(one.json(), one.attempt) for one in take_all(pair)] == [("sooner", 2), ("later", 1)]


def test_nothing_overtakes_what_was_handed_out_before_it(store: Store, clock: Clock) -> None:
    """Whatever the priorities: of each key the order of first deliveries is the order in which messages end."""
    chance = Random(choose_seed())
    lanes = store.queue("lanes", **{**POLICY, "ordered": True, "shards": 3, "max_retries": None})
    handed: dict[str, list[int]] = {key: [] for key in "abcde"}
    ended: dict[str, list[int]] = {key: [] for key in "abcde"}
    for number in range(150):
        key = chance.choice("abcde")
        lanes.send([key, number], key=key, priority=chance.randrange(3))
        for delivery in lanes.receive(limit=chance.randrange(1, 6)):
            key, name = delivery.json()
            handed[key] += [name] if name not in handed[key] else []
            verb = chance.choice(["ack", "ack", "ack", "nak", "nak later", "forget"])
            try:
                if verb == "ack":
                    delivery.ack()
                    ended[key].append(name)
                elif verb != "forget":
                    delivery.nak("busy", delay_seconds=7 * (verb == "nak later"))
            except (LeaseLost, OutOfOrder):
                continue
        clock.advance(seconds=chance.choice([0, 0, 3, 41]))
    assert sum(map(len, ended.values())) > 30
    for key in ended:
        assert ended[key] == handed[key][: len(ended[key])]
