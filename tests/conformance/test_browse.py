"""browse: messages of the log in order, in any state, in both directions and between any two positions."""

from __future__ import annotations

from penstock import Outgoing, Queue, Store
from penstock.domain.timestamps import to_time
from tests.conformance.assertions import take_all
from tests.conformance.clock import Clock


def _interleaved(queue: Queue, store: Store) -> list[int]:
    """A queue with several lanes whose positions interleave with those of another queue."""
    other = store.queue("other")
    for number in range(12):
        queue.send_many([Outgoing(payload=number, priority=number % 3), Outgoing(payload=number, priority=2)])
        other.send_many([number] * (number % 4))
    return [_position(one) for one in queue.engine.browse(queue.name, 0, None, 1000)]


def _position(message: object) -> int:
    position = getattr(message, "position", None)
    assert isinstance(position, int)
    return position


def test_a_queue_is_read_without_those_of_others(queue: Queue, store: Store) -> None:
    positions = _interleaved(queue, store)
    assert len(positions) == 24
    assert positions == sorted(positions)
    assert all(one.queue == queue.name for one in queue.engine.browse(queue.name, 0, None, 1000))


def test_any_stretch_in_either_direction(queue: Queue, store: Store) -> None:
    positions = _interleaved(queue, store)
    first, last = max(0, positions[0] - 5), positions[-1] + 3
    for after in (0, *range(first, last, 5)):
        for upto in (None, *range(max(after, first), last, 4)):
            wanted = [one for one in positions if after < one and (upto is None or one <= upto)]
            for limit in (1, 3, 1000):
                forth = queue.engine.browse(queue.name, after, upto, limit)
                back = queue.engine.browse(queue.name, after, upto, limit, backwards=True)
                assert [_position(one) for one in forth] == wanted[:limit]
                assert [_position(one) for one in back] == wanted[::-1][:limit]


def test_finished_messages_are_still_there(queue: Queue) -> None:
    sent = queue.send_many([1, 2, 3])
    for delivery in take_all(queue):
        delivery.ack()
    assert [one.id for one in queue.engine.browse(queue.name, 0, None, 10)] == sent


def test_the_archive_of_a_queue_among_others(queue: Queue, store: Store) -> None:
    positions = _interleaved(queue, store)
    deliveries = queue.receive(limit=20)
    for delivery in deliveries:
        delivery.ack()
    ended = sorted((delivery.position for delivery in deliveries), reverse=True)
    assert [_position(one.message) for one in queue.archive(limit=1000)] == ended
    assert set(ended) < set(positions)
    walked: list[int] = []
    page = queue.archive(limit=3)
    while page:
        walked += [_position(one.message) for one in page]
        page = queue.archive(limit=3, before=walked[-1])
    assert walked == ended


def test_a_queue_that_was_never_used_has_nothing(store: Store) -> None:
    assert store.queue("unused").engine.browse("unused", 0, None, 10) == []


def test_all_that_was_sent_is_settled_when_nobody_is_sending(queue: Queue, store: Store) -> None:
    assert queue.engine.settled(queue.name) == queue.engine.last_position(queue.name)
    positions = _interleaved(queue, store)
    assert queue.engine.settled(queue.name) >= positions[-1]
    assert queue.engine.settled("unknown") >= queue.engine.last_position("unknown")


def test_places_are_what_browse_finds_without_what_has_expired(queue: Queue, store: Store, clock: Clock) -> None:
    positions = _interleaved(queue, store)
    queue.send(b"gone", ttl_seconds=5)
    queue.send(b"12345")
    clock.advance(seconds=6)
    engine = queue.engine
    places = engine.places(queue.name, 0, None, 1000)
    assert [place[0] for place in places[:-1]] == positions
    assert places[-1][2] == 5
    assert engine.places(queue.name, 0, None, 1000, backwards=True) == places[::-1]
    assert engine.places(queue.name, positions[3], positions[9], 4) == places[4:8]
    sent = {one.position: one.created_at for one in engine.browse(queue.name, 0, None, 1000)}
    assert all(sent[position] == to_time(at) for position, at, _ in places)
    assert engine.places("unknown", 0, None, 10) == []


def test_as_many_messages_fit_as_have_the_bytes(queue: Queue) -> None:
    queue.send_many([b"x" * 100 for _ in range(10)])
    engine, name = queue.engine, queue.name
    assert [engine.fitting(name, "default", 10, size) for size in (1, 100, 199, 200, 950, 1000)] == [1, 1, 1, 2, 9, 10]
    assert engine.fitting(name, "default", 3, 10_000) == 3
    assert engine.fitting(name, "default", 50, 10_000) == 50
    for delivery in take_all(queue)[:4]:
        delivery.nak("again", delay_seconds=0)
    assert engine.fitting(name, "default", 10, 350) == 3
    assert engine.fitting("unknown", "default", 7, 1) == 7
