"""Messages by state: each live or ended message is listed under its state, in pages without gaps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from penstock import InvalidInput, MessagePage, MessageSummary, NotFound, Outgoing, Queue, State, Store
from tests.conformance.assertions import take
from tests.conformance.clock import Chance, Clock

LIVE = ("held", "ready", "leased")


def pages(fetch: Callable[[str | None], MessagePage], most: int = 50) -> list[MessageSummary]:
    """All pages, one after the other."""
    found: list[MessageSummary] = []
    after: str | None = None
    for _ in range(most):
        page = fetch(after)
        found += page.messages
        after = page.next
        if after is None:
            return found
    raise AssertionError(f"more than {most} pages")


def listed(queue: Queue, state: str, limit: int = 2, group: str | None = None) -> list[MessageSummary]:
    return pages(lambda after: queue.messages(state, group=group, limit=limit, after=after))


def ids(found: list[MessageSummary]) -> list[str]:
    return [one.id for one in found]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_delayed_messages_are_listed_by_when_they_are_due(queue: Queue, clock: Clock, limit: int) -> None:
    late = queue.send(1, delay_seconds=90)
    together = queue.send_many([Outgoing(payload=number, delay_seconds=60) for number in range(3)])
    soon = queue.send(2, delay_seconds=30)
    queue.send("ready")
    found = listed(queue, "held", limit)
    assert ids(found) == [soon, *together, late]
    assert {one.state for one in found} == {State.HELD}
    assert [one.due_at for one in found[:1]] == [clock.now + timedelta(seconds=30)]
    assert [one.position for one in found] == [None] * 5


def test_retries_are_held_among_the_delayed_with_their_last_error(queue: Queue, clock: Clock, chance: Chance) -> None:
    chance.value = 0
    failed = queue.send("failing")
    take(queue).nak("gateway down", delay_seconds=60)
    before, after = (queue.send(1, delay_seconds=seconds) for seconds in (50, 70))
    found = listed(queue, "held", 1)
    assert ids(found) == [before, failed, after]
    assert (found[1].reason, found[1].attempt) == ("gateway down", 1)
    assert found[1].due_at == clock.now + timedelta(seconds=60)


def test_members_of_a_batch_that_has_not_started_are_held_without_a_time(queue: Queue) -> None:
    delayed = queue.send(1, delay_seconds=60)
    first, second = queue.batch("first"), queue.batch("second")
    members = [*first.send_many([1, 2, 3]), second.send(4)]
    for limit in (1, 3, 100):
        found = listed(queue, "held", limit)
        assert ids(found) == [delayed, *members]
        assert [one.due_at is None for one in found] == [False, True, True, True, True]
        assert [one.batch for one in found] == [None, "first", "first", "first", "second"]
    first.start()
    assert ids(listed(queue, "held")) == [delayed, members[3]]


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
def test_ready_messages_are_listed_in_the_order_of_receiving(queue: Queue, limit: int) -> None:
    worse = queue.send_many([Outgoing(payload=number, priority=5) for number in range(3)])
    retried = [queue.send(number) for number in range(2)]
    for delivery in queue.receive(2):
        delivery.nak("again", delay_seconds=0)
    best = [queue.send(number) for number in range(4)]
    found = listed(queue, "ready", limit)
    assert ids(found) == [*retried, *best, *worse]
    assert [one.attempt for one in found] == [1, 1, 0, 0, 0, 0, 0, 0, 0]
    assert ids(found) == [delivery.id for delivery in queue.receive(100)]
    assert listed(queue, "ready", limit) == []


def test_what_was_received_is_not_ready(queue: Queue) -> None:
    sent = queue.send_many(list(range(10)))
    queue.ack_many(queue.receive(3))
    assert ids(listed(queue, "ready", 3)) == sent[3:]
    queue.receive(2)
    assert ids(listed(queue, "ready", 3)) == sent[5:]
    queue.send_many(["more"] * 2)
    assert len(listed(queue, "ready", 3)) == 7


def test_every_group_has_states_of_its_own(queue: Queue) -> None:
    sent = queue.send_many([1, 2])
    queue.receive(1)
    assert ids(listed(queue, "ready")) == sent[1:]
    assert ids(listed(queue, "leased")) == sent[:1]
    assert ids(listed(queue, "ready", group="another")) == sent
    queue.receive(1, group="another")
    assert ids(listed(queue, "leased", group="another")) == sent[:1]


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_running_messages_are_listed_with_who_has_them_and_since_when(queue: Queue, clock: Clock, limit: int) -> None:
    sent = queue.send_many([1, 2, 3, 4])
    queue.receive(3, consumer="ann")
    began = clock.now
    clock.advance(seconds=7)
    queue.receive(1, consumer="bob")
    found = listed(queue, "leased", limit)
    assert ids(found) == sent
    assert [one.consumer for one in found] == ["ann", "ann", "ann", "bob"]
    assert [one.leased_at for one in found] == [began, began, began, clock.now]
    assert found[0].due_at == began + timedelta(seconds=37)
    assert [one.id for one in queue.leases(consumer="bob")] == sent[3:]
    assert [one.id for one in queue.leases(limit=2, after=queue.leases(limit=2)[-1].position)] == sent[2:]


def test_ended_messages_are_listed_by_outcome_newest_first(queue: Queue, clock: Clock) -> None:
    sent = queue.send_many(list(range(6)))
    for number, delivery in enumerate(queue.receive(6)):
        clock.advance(seconds=1)
        if number % 2:
            delivery.ack()
        else:
            delivery.reject(f"reason {number}")
    assert ids(listed(queue, "succeeded")) == [sent[5], sent[3], sent[1]]
    rejected = listed(queue, "rejected")
    assert ids(rejected) == [sent[4], sent[2], sent[0]]
    assert [one.reason for one in rejected] == ["reason 4", "reason 2", "reason 0"]
    assert listed(queue, "failed") == []


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("removed", [slice(-1, None), slice(-17, None), slice(None, None, 2), slice(20, 50)])
def test_what_was_removed_shortens_no_page_of_ended_messages(queue: Queue, removed: slice, at_once: bool) -> None:
    sent = queue.send_many(list(range(60)))
    deliveries = queue.receive(60)
    if at_once:
        queue.ack_many(deliveries)
    else:
        for delivery in deliveries:
            delivery.ack()
    gone = sent[removed]
    assert queue.remove(gone) == len(gone)
    left = [one for one in reversed(sent) if one not in gone]
    for limit in (2, 7, 17):
        assert len(queue.messages("succeeded", limit=limit).messages) == limit
        assert ids(listed(queue, "succeeded", limit)) == left
        assert [one.message.id for one in queue.archive(limit=limit)] == left[:limit]


def test_what_was_removed_shortens_no_page_of_dead_letters(queue: Queue) -> None:
    sent = queue.send_many(list(range(30)))
    for delivery in queue.receive(30):
        delivery.reject("no")
    queue.remove([*sent[-7:], *sent[:10:2]])
    left = [*sent[1:10:2], *sent[10:-7]][::-1]
    for limit in (1, 7):
        assert len(queue.messages("rejected", limit=limit).messages) == limit
        assert ids(listed(queue, "rejected", limit)) == left
        assert [one.message.id for one in queue.archive(limit=limit)] == left[:limit]


def test_every_message_is_in_the_list_of_one_state(queue: Queue, clock: Clock) -> None:
    sent = queue.send_many([Outgoing(payload=number, priority=number % 3) for number in range(9)])
    sent += [queue.send("later", delay_seconds=1000), queue.batch("b").send("held")]
    deliveries = queue.receive(5)
    deliveries[0].ack()
    deliveries[1].reject("no")
    deliveries[2].nak("again")
    found = {state: ids(listed(queue, state)) for state in [str(one) for one in State]}
    assert sorted(one for several in found.values() for one in several) == sorted(sent)
    stats = queue.stats("default")
    assert len(found["held"]) == stats.held
    assert len(found["ready"]) == stats.available + stats.redo
    assert len(found["leased"]) == stats.in_progress


def test_a_page_goes_on_where_the_last_one_ended_whatever_happened_between(queue: Queue) -> None:
    sent = queue.send_many(list(range(6)))
    first = queue.messages("ready", limit=3)
    assert first.next is not None
    queue.ack_many(queue.receive(2))
    sent += queue.send_many(["new"])
    second = queue.messages("ready", limit=10, after=first.next)
    assert ids(first.messages) + ids(second.messages) == sent


@pytest.mark.parametrize("after", ["", "x", "1-x", "1", "1-2-3-4-5", "-1", "9" * 200, "1-2-3-\N{SUPERSCRIPT TWO}"])
@pytest.mark.parametrize("state", ["held", "ready"])
def test_a_wrong_mark_of_a_page_is_refused(queue: Queue, state: str, after: str) -> None:
    queue.send(1)
    with pytest.raises(InvalidInput, match="after must be `next` of the page before, not"):
        queue.messages(state, after=after)


def test_an_unknown_state_or_queue_is_named(store: Store, queue: Queue) -> None:
    queue.send(1)
    with pytest.raises(InvalidInput, match=r"'redy' is not a state .*did you mean 'ready'"):
        queue.messages("redy")
    for state in LIVE:
        with pytest.raises(NotFound, match="there is no queue 'order'; did you mean 'orders'"):
            store.queue("order").messages(state)
    assert [info.name for info in store.queues()] == ["orders"]


def test_what_must_be_passed_over_is_not_ready(queue: Queue, clock: Clock) -> None:
    queue.send_many([Outgoing(payload=number, ttl_seconds=5) for number in range(4)])
    kept = queue.send("kept")
    clock.advance(seconds=6)
    assert ids(listed(queue, "ready", 1)) == [kept]


# -- members of a batch ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_members_of_a_batch_are_listed_with_their_states(queue: Queue, limit: int) -> None:
    batch = queue.batch("nightly")
    sent = batch.send_many([1, 2, 3, 4])
    late = batch.send(5, delay_seconds=500)
    queue.send("of no batch")
    assert [one.state for one in batch.members().messages] == [State.HELD] * 5
    batch.start()
    for delivery in queue.receive(10):
        if delivery.id == sent[0]:
            delivery.ack()
        elif delivery.id == sent[1]:
            delivery.reject("broken")
        elif delivery.id == sent[2]:
            delivery.nak("again", delay_seconds=60)
    found = pages(lambda after: queue.batch("nightly").members(limit=limit, after=after))
    assert ids(found) == [*sent, late]
    assert [str(one.state) for one in found] == ["succeeded", "rejected", "held", "leased", "held"]
    assert found[1].reason == "broken"


def test_cancelled_members_stay_listed(queue: Queue) -> None:
    batch = queue.batch("nightly")
    sent = batch.send_many([1, 2])
    batch.cancel()
    found = batch.members().messages
    assert ids(found) == sent
    assert [str(one.state) for one in found] == ["cancelled", "cancelled"]


def test_members_are_those_of_the_newest_batch_of_the_name(queue: Queue) -> None:
    first = queue.batch("nightly")
    old = first.send(1)
    first.start()
    take(queue).ack()
    second = queue.batch("nightly")
    new = second.send(2)
    assert ids(second.members().messages) == [new]
    assert ids(queue.batch("nightly").members().messages) == [new]
    assert ids(first.members().messages) == [old]


def test_members_of_an_unknown_batch(queue: Queue) -> None:
    queue.batch("nightly").send(1)
    with pytest.raises(NotFound, match="has no batch 'nihgtly'; did you mean 'nightly'"):
        queue.batch("nihgtly").members()
