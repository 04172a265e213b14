"""Messages that an operator takes out: single ones, and the oldest. They are gone as if past retention, and the books
balance without them."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from penstock import InvalidInput, LeaseLost, NotFound, Queue, State, Store
from tests.conformance.assertions import assert_books_balance, payloads, take, take_all
from tests.conformance.clock import Clock

PLACES: dict[str, Callable[[Queue], object]] = {
    "unread": lambda queue: None,
    "leased": lambda queue: take(queue),
    "leased with others": lambda queue: take_all(queue),
    "waiting for a retry": lambda queue: take(queue).nak("busy"),
    "due again": lambda queue: take(queue).nak("busy", delay_seconds=0),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_live_message_is_removed_wherever_it_is(queue: Queue, place: str) -> None:
    message_id, *_ = queue.send_many(["gone", "second", "third"])
    PLACES[place](queue)
    assert queue.remove([message_id]) == 1
    stats = assert_books_balance(queue, sent=3)
    assert (stats.outcomes["cancelled"], stats.dead) == (1, 0)
    with pytest.raises(NotFound, match=message_id):
        queue.find(message_id)
    assert message_id not in [one.id for one in queue.peek(10)]
    assert queue.remove([message_id]) == 0


def test_what_is_left_comes_in_order_and_once(queue: Queue, clock: Clock) -> None:
    sent = queue.send_many([0, 1, 2, 3, 4, 5])
    assert queue.remove([sent[2], sent[4]]) == 2
    assert payloads(take_all(queue)) == [0, 1, 3, 5]
    clock.advance(seconds=38)
    assert payloads(take_all(queue)) == [0, 1, 3, 5]
    assert_books_balance(queue, sent=6)


def test_the_lease_of_a_removed_message_is_lost_and_its_neighbours_are_not(queue: Queue) -> None:
    queue.send_many([1, 2, 3])
    first, second, third = take_all(queue)
    queue.remove([second.id])
    with pytest.raises(LeaseLost):
        second.ack()
    first.ack()
    third.ack()
    assert assert_books_balance(queue, sent=3).done == 2


def test_a_finished_message_takes_its_trail_and_its_dead_letter_along(queue: Queue) -> None:
    done, dead = queue.send_many([1, 2])
    take(queue).ack()
    take(queue).reject("bad")
    assert queue.remove([done, dead]) == 2
    assert queue.dead_letters() == []
    assert queue.archive() == []
    for message_id in (done, dead):
        with pytest.raises(NotFound):
            queue.audit(message_id)
    stats = assert_books_balance(queue, sent=2)
    assert (stats.outcomes["succeeded"], stats.outcomes["rejected"]) == (1, 1), "what happened is still counted"


def test_a_held_message_can_be_removed(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(1, delay_seconds=60)
    assert queue.remove([message_id]) == 1
    clock.advance(seconds=61)
    assert queue.receive() == []
    assert assert_books_balance(queue, sent=1).outcomes["cancelled"] == 1


def test_every_group_is_rid_of_it(queue: Queue) -> None:
    ids = queue.send_many([1, 2, 3])
    take(queue, group="ahead").ack()
    take(queue, group="ahead")
    queue.remove(ids[:2])
    assert payloads(take_all(queue)) == [3]
    assert payloads(take_all(queue, group="ahead")) == [3]
    assert payloads(take_all(queue, group="new")) == [3]
    assert queue.stats(group="ahead").outcomes["succeeded"] == 1
    assert queue.stats(group="ahead").outcomes["cancelled"] == 1
    assert queue.stats(group="default").outcomes["cancelled"] == 2


def test_an_address_is_free_and_a_batch_goes_on(queue: Queue) -> None:
    owner = queue.send(1, address="desk 7")
    batch = queue.batch("nightly")
    member = batch.send(2)
    batch.set_end("end")
    batch.start()
    assert queue.remove([owner, member]) == 2
    queue.send(3, address="desk 7")
    assert queue.batch("nightly").state == "finished"
    assert payloads(take_all(queue)) == ["end", 3]


def test_ids_that_are_none_change_nothing(queue: Queue) -> None:
    queue.send(1)
    assert queue.remove(["019a8c3e-7b2d-7abc-8def-00000000002a"]) == 0
    with pytest.raises(InvalidInput, match="nonsense"):
        queue.remove(["nonsense"])
    assert_books_balance(queue, sent=1)


# -- the oldest --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
def test_the_oldest_are_trimmed_wherever_they_are(queue: Queue, place: str) -> None:
    queue.send_many([1, 2, 3, 4, 5])
    PLACES[place](queue)
    assert queue.trim(keep=2) == 3
    stats = assert_books_balance(queue, sent=5)
    assert stats.outcomes["cancelled"] == 3
    if place != "leased with others":
        assert payloads(take_all(queue)) == [4, 5]
    assert queue.trim(keep=2) == 0


def test_trimming_up_to_a_position(queue: Queue) -> None:
    ids = queue.send_many([1, 2, 3])
    second = queue.find(ids[1]).position
    assert queue.trim(upto=second) == 2
    assert queue.trim(upto=second) == 0
    assert payloads(take_all(queue, group="new")) == [3]
    queue.send(4)
    assert queue.trim(upto=2**62) == 2
    assert queue.trim(keep=0) == 0
    assert take_all(queue) == []
    queue.send(5)
    assert payloads(take_all(queue)) == [5]


def test_dead_letters_outlive_trimming(queue: Queue) -> None:
    queue.send_many([1, 2])
    take(queue).reject("bad")
    assert queue.trim(keep=0) == 1
    assert payloads(queue.dead_letters()) == [1]
    assert queue.redrive() == 1
    assert payloads(take_all(queue)) == [1]


def test_other_queues_are_left_alone(queue: Queue, store: Store) -> None:
    other = store.queue("another")
    for number in range(4):
        queue.send(number)
        other.send(10 + number)
    assert queue.trim(keep=1) == 3
    assert queue.remove([other.peek(1)[0].id]) == 0
    assert payloads(take_all(other)) == [10, 11, 12, 13]
    assert payloads(take_all(queue)) == [3]


@pytest.mark.parametrize("arguments", [{}, {"upto": 1, "keep": 1}, {"keep": -1}, {"upto": "x"}])
def test_what_trim_does_not_take(queue: Queue, arguments: dict[str, object]) -> None:
    queue.send(1)
    with pytest.raises(InvalidInput):
        queue.trim(**arguments)  # type: ignore[arg-type]
    assert len(queue.peek(10)) == 1


def test_at_random_nothing_else_is_lost_or_doubled(store: Store, clock: Clock, seed: int) -> None:
    """A queue with several lanes, interleaved with other queues."""
    dice = random.Random(seed)
    queue, other = store.queue("several lanes", shards=3, max_retries=None), store.queue("between")
    live = {queue.send(1): 1}
    sent, done = 1, 0
    for _ in range(120):
        match dice.randrange(6):
            case 0 | 1:
                sent += 1
                live[queue.send(sent, priority=dice.randrange(2), key=str(dice.randrange(9)))] = sent
                other.send(sent)
            case 2:
                for delivery in queue.receive(limit=dice.randint(1, 4)):
                    if dice.random() < 0.5:
                        delivery.ack()
                        done += 1
                        del live[delivery.id]
            case 3 if live:
                gone = dice.sample(sorted(live), min(len(live), dice.randint(1, 3)))
                assert queue.remove(gone) == len(gone)
                for one in gone:
                    del live[one]
            case 4 if dice.random() < 0.3:
                keep = dice.randint(0, 8)
                queue.trim(keep=keep)
                live = {one: number for one, number in live.items() if _is_there(queue, one)}
            case _:
                clock.advance(seconds=20)
                store.sweep()
        stats = queue.stats(group="default")
        alive = stats.held + stats.available + stats.redo + stats.in_progress
        assert (alive, stats.done) == (len(live), done)
        assert alive + sum(stats.outcomes.values()) == sent
    clock.advance(seconds=31)
    assert sorted(payloads(take_all(queue))) == sorted(live.values())
    assert store.repair(dry_run=True) == []


def _is_there(queue: Queue, message_id: str) -> bool:
    try:
        return queue.explain(message_id).state is not State.CANCELLED
    except NotFound:
        return False
