"""states: the states of many messages in a group, from the last entries of their trails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import NotFound, Outgoing, Queue, State, Store
from penstock.domain.results import MessageState
from tests.conformance.assertions import group_entries, take, take_all
from tests.conformance.clock import Clock
from tests.conformance.conftest import POLICY
from tests.conformance.test_random_life import KINDS, Life

UNKNOWN = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
CHOSEN = "5f0c1b0e-2f5c-4f5e-9d53-0a4c6c6c3f11"
# A method of the engine, which both clients share.
pytestmark = pytest.mark.parametrize("client_kind", ["sync"])


def states(queue: Queue, ids: list[str], group: str = "default") -> list[MessageState | None]:
    return queue.engine.states(queue.name, group, ids)


def reject_and_redrive(queue: Queue) -> None:
    take(queue).reject("no")
    queue.redrive()


STANDINGS: dict[str, tuple[Callable[[Queue], Any], MessageState]] = {
    "ready": (lambda queue: None, MessageState(State.READY, None)),
    "leased": (lambda queue: take(queue), MessageState(State.LEASED, None)),
    "waiting for a retry": (lambda queue: take(queue).nak("busy"), MessageState(State.HELD, "busy")),
    "due for a retry": (lambda queue: take(queue).nak("late", delay_seconds=0), MessageState(State.READY, "late")),
    "rescheduled": (lambda queue: take(queue).reschedule(71, "later"), MessageState(State.HELD, "later")),
    "succeeded": (lambda queue: take(queue).ack("printed"), MessageState(State.SUCCEEDED, "printed")),
    "dead": (lambda queue: take(queue).reject("no"), MessageState(State.REJECTED, "no")),
    "redriven": (lambda queue: reject_and_redrive(queue), MessageState(State.READY, "was rejected")),
}


@pytest.mark.parametrize("standing", STANDINGS)
@pytest.mark.parametrize("chosen", [None, CHOSEN], ids=["made id", "chosen id"])
def test_a_message_stands_where_it_was_brought(queue: Queue, standing: str, chosen: str | None) -> None:
    move, expected = STANDINGS[standing]
    message_id = queue.send(1, id=chosen)
    move(queue)
    assert states(queue, [message_id]) == [expected]


def test_answers_come_in_the_order_of_the_ids_and_as_often(queue: Queue) -> None:
    first, second, third = queue.send_many([1, 2, 3])
    deliveries = {one.id: one for one in queue.receive(limit=2)}
    deliveries[second].reject("broken")
    rejected, leased, ready = (
        MessageState(State.REJECTED, "broken"),
        MessageState(State.LEASED, None),
        MessageState(State.READY, None),
    )
    assert states(queue, [third, first, second, third]) == [ready, leased, rejected, ready]
    assert states(queue, []) == []


def test_what_is_held_has_a_state_too(queue: Queue) -> None:
    delayed = queue.send(1, delay_seconds=13)
    member = queue.batch("nightly").send(2)
    sent = queue.send(3)
    assert [one and one.state for one in states(queue, [sent, delayed, member])] == [
        State.READY,
        State.HELD,
        State.HELD,
    ]


def test_what_was_delayed_is_ready_when_due(queue: Queue, clock: Clock, store: Store) -> None:
    delayed = queue.send(1, delay_seconds=13)
    clock.advance(seconds=14)
    store.sweep()
    assert states(queue, [delayed]) == [MessageState(State.READY, None)]


def test_there_is_none_for_a_message_that_the_queue_does_not_have(queue: Queue, store: Store) -> None:
    elsewhere = store.queue("elsewhere").send(1)
    here = queue.send(2)
    assert states(queue, [UNKNOWN, here, elsewhere]) == [None, MessageState(State.READY, None), None]


def test_there_is_none_past_retention_but_for_a_dead_letter(queue: Queue, store: Store, clock: Clock) -> None:
    acked, dead, unread = queue.send_many([1, 2, 3])
    for delivery in queue.receive(limit=2):
        if delivery.id == acked:
            delivery.ack()
        else:
            delivery.reject("broken")
    store.sweep()
    clock.advance(seconds=POLICY["history_seconds"] + 1)
    store.sweep()
    assert states(queue, [acked, dead, unread]) == [
        None,
        MessageState(State.REJECTED, "broken"),
        MessageState(State.READY, None),
    ]


def test_every_group_has_states_of_its_own(queue: Queue) -> None:
    first, second = queue.send_many([1, 2])
    take(queue).ack("printed")
    take(queue, group="billing")
    succeeded, leased, ready = (
        MessageState(State.SUCCEEDED, "printed"),
        MessageState(State.LEASED, None),
        MessageState(State.READY, None),
    )
    assert states(queue, [first, second]) == [succeeded, ready]
    assert states(queue, [first, second], "billing") == [leased, ready]
    assert states(queue, [first, second], "never used") == [ready, ready]


def test_messages_far_from_each_other_are_found_together(queue: Queue, store: Store) -> None:
    """Positions with small and with large gaps between them."""
    other = store.queue("other")
    sent = []
    for number in range(3):
        sent += queue.send_many([Outgoing(payload=number)] * 3)
        other.send_many([b"x"] * 400)
    for delivery in take_all(queue)[::2]:
        delivery.reject(f"broken {delivery.id}")
    expected = [
        MessageState(State.REJECTED, f"broken {one}") if number % 2 == 0 else MessageState(State.LEASED, None)
        for number, one in enumerate(sent)
    ]
    assert states(queue, sent) == expected
    assert states(queue, sent[::-1]) == expected[::-1]


def test_a_queue_that_does_not_exist_is_named(store: Store) -> None:
    store.queue("orders").send(1)
    with pytest.raises(NotFound, match="ordres"):
        store.engine.states("ordres", "default", [UNKNOWN])


@pytest.mark.parametrize("kind", KINDS)
def test_states_are_the_last_entries_of_the_trails(store: Store, clock: Clock, kind: str) -> None:
    queue = store.queue("orders", **{**POLICY, **KINDS[kind]})
    queue.receive(group="billing")
    life = Life(queue, clock, seed=11)
    life.live(120)
    for group in ("default", "billing", "never used"):
        last = [group_entries(queue, message_id, group)[-1] for message_id in life.sent]
        assert states(queue, life.sent, group) == [MessageState(one.state, one.reason) for one in last]
