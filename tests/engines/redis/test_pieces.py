"""Work that outgrows one call is done in pieces, and the state between two pieces is legal: a sweep finishes what a
client left behind. The functions of this server work in pieces of three messages."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import redis

import penstock
from penstock.engines.redis import RedisEngine, library
from tests.conformance.assertions import assert_trail_is_legal, payloads, take, take_all
from tests.conformance.clock import Clock
from tests.engines.redis.server import RedisServer

MANY = 10
STEPS = "local STEPS = 1000\n"
_prefixes = itertools.count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    assert STEPS in library.source()
    with RedisServer("--save", "", "--appendonly", "no") as server:
        with redis.Redis(unix_socket_path=str(server.socket)) as client:
            client.function_load(library.source().replace(STEPS, "local STEPS = 3\n"))
        yield server


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(server: RedisServer, clock: Clock) -> Iterator[penstock.Store]:
    with penstock.connect(f"{server.url}?prefix=p{next(_prefixes)}", clock=clock) as store:
        yield store


def one_call(store: penstock.Store, verb: str, queue: str, **given: Any) -> Any:
    """What a client did that ended before it called again."""
    assert isinstance(store.engine, RedisEngine)
    return store.engine.database.write(verb, queue, **given)


def assert_all_legal(queue: penstock.Queue, ids: list[str]) -> None:
    for message_id in ids:
        assert_trail_is_legal(queue, message_id)


def test_a_receive_reclaims_every_lapsed_lease_before_it_chooses(store: penstock.Store, clock: Clock) -> None:
    queue = store.queue("orders", lease_seconds=5)
    ids = queue.send_many([penstock.Outgoing(payload=number, priority=9) for number in range(MANY)])
    queue.receive(limit=MANY - 1)
    take(queue)
    ids += queue.send_many([penstock.Outgoing(payload="urgent")])
    take(queue)
    clock.advance(seconds=6)
    assert [(one.json(), one.attempt) for one in queue.receive(limit=2)] == [("urgent", 2), (0, 2)]
    assert len(take_all(queue)) == MANY - 1
    assert_all_legal(queue, ids)


def test_a_sweep_reclaims_what_a_client_left_behind(store: penstock.Store, clock: Clock) -> None:
    queue = store.queue("orders", lease_seconds=5, max_retries=0)
    ids = queue.send_many(range(MANY))
    deliveries = take_all(queue)
    clock.advance(seconds=6)
    *_, found = one_call(store, "receive", "orders", group=None, shares=[("c", 1)])
    assert found is None
    between = queue.stats("default")
    assert (between.dead, between.in_progress, between.available) == (3, MANY - 3, 0)
    with pytest.raises(penstock.LeaseLost):
        deliveries[-1].ack()
    assert store.sweep().reclaimed == MANY - 3
    assert [letter.attempts for letter in queue.dead_letters()] == [1] * MANY
    assert_all_legal(queue, ids)


def test_an_ordered_queue_blames_only_the_first_message_of_a_lapsed_lease(store: penstock.Store, clock: Clock) -> None:
    queue = store.queue("orders", lease_seconds=5, ordered=True)
    ids = queue.send_many([penstock.Outgoing(payload=number, key="k") for number in range(MANY)])
    take_all(queue)
    clock.advance(seconds=6)
    again = take_all(queue)
    assert [(one.json(), one.attempt) for one in again] == [(0, 2)] + [(number, 1) for number in range(1, MANY)]
    assert queue.ack_many(again) == MANY
    assert_all_legal(queue, ids)


@pytest.mark.parametrize("sweeps", [False, True])
def test_messages_that_expired_unread_end_once(store: penstock.Store, clock: Clock, sweeps: bool) -> None:
    queue = store.queue("orders")
    ids = queue.send_many([penstock.Outgoing(payload=number, ttl_seconds=5) for number in range(MANY)])
    ids.append(queue.send("lasting"))
    clock.advance(seconds=6)
    if sweeps:
        assert store.sweep().expired == MANY
        assert store.sweep().expired == 0
    assert payloads(take_all(queue)) == ["lasting"]
    assert queue.stats("default").outcomes["expired"] == MANY
    assert sorted(payloads(queue.dead_letters())) == list(range(MANY))
    assert_all_legal(queue, ids)


def test_a_receive_returns_what_it_has_when_a_piece_ends(store: penstock.Store, clock: Clock) -> None:
    queue = store.queue("orders")
    queue.send("first")
    queue.send_many([penstock.Outgoing(payload=number, ttl_seconds=5) for number in range(MANY)])
    queue.send("worse", priority=3)
    clock.advance(seconds=6)
    assert payloads(queue.receive(limit=5)) == ["first"]
    assert payloads(queue.receive(limit=5)) == ["worse"]


def test_retries_and_held_messages_that_expired_end_once(store: penstock.Store, clock: Clock) -> None:
    queue = store.queue("orders", delivery="at_most_once", backoff_base_seconds=60, backoff_jitter_seconds=0)
    ids = queue.send_many([penstock.Outgoing(payload=number, ttl_seconds=5) for number in range(MANY)])
    for delivery in take_all(queue):
        delivery.nak("busy")
    ids += queue.send_many(
        [penstock.Outgoing(payload=number, ttl_seconds=5, delay_seconds=60) for number in range(MANY)]
    )
    clock.advance(seconds=6)
    assert store.sweep().expired == 2 * MANY
    assert queue.stats("default").dead == 2 * MANY
    assert_all_legal(queue, ids)


@pytest.mark.parametrize("is_left", [False, True])
def test_a_batch_is_started_in_pieces(store: penstock.Store, is_left: bool) -> None:
    queue = store.queue("orders")
    batch = queue.batch("nightly")
    batch.set_end("ended")
    ids = batch.send_many(range(MANY))
    if is_left:
        one_call(store, "batch_start", "orders", name="nightly")
    else:
        batch.start()
    assert batch.info().state == "running"
    started = take_all(queue)
    assert payloads(started) == ([0, 1, 2] if is_left else list(range(MANY)))
    queue.ack_many(started)
    if is_left:
        store.sweep()
        rest = take_all(queue)
        assert payloads(rest) == list(range(3, MANY))
        queue.ack_many(rest)
    assert batch.info().state == "finished"
    assert payloads(take_all(queue)) == ["ended"]
    assert_all_legal(queue, ids)


@pytest.mark.parametrize("is_left", [False, True])
def test_a_batch_is_cancelled_in_pieces_and_aborts_once(store: penstock.Store, is_left: bool) -> None:
    queue = store.queue("orders", backoff_base_seconds=0, backoff_jitter_seconds=0)
    batch = queue.batch("nightly")
    batch.set_abort("aborted")
    ids = batch.send_many(range(MANY))
    batch.start()
    held = take(queue)
    retried = queue.receive(limit=5)
    for delivery in reversed(retried):
        delivery.nak("busy", delay_seconds=0)
    if is_left:
        one_call(store, "batch_cancel", "orders", name="nightly")
        # Neither retries nor unread members are delivered any more.
        assert take_all(queue) == []
        assert batch.info().state == "cancelling"
        store.sweep()
    else:
        batch.cancel()
    held.ack()
    assert batch.info().state == "cancelled"
    assert payloads(take_all(queue)) == ["aborted"]
    outcomes = queue.stats("default").outcomes
    assert (outcomes["succeeded"], outcomes["cancelled"]) == (1, MANY - 1)
    assert_all_legal(queue, ids)


@pytest.mark.parametrize("is_left", [False, True])
def test_leases_of_a_consumer_that_leaves_end_in_pieces(store: penstock.Store, is_left: bool) -> None:
    queue = store.queue("orders")
    ids = queue.send_many(range(MANY + 1))
    consumer = queue.register("zoe", heartbeat_seconds=60)
    take(queue, consumer="adam")
    for _ in range(MANY):
        take(queue, consumer="zoe")
    if is_left:
        assert one_call(store, "deregister", "orders", group="default", name="zoe") == [3, 1]
        queue.register("zoe", heartbeat_seconds=60)
        mine = take(queue, consumer="zoe")
        store.sweep()
        mine.ack()
        assert len(take_all(queue)) == MANY - 1
    else:
        assert consumer.deregister() == MANY
        assert len(take_all(queue)) == MANY
    assert_all_legal(queue, ids)


def test_dead_letters_are_redriven_and_purged_in_pieces(store: penstock.Store) -> None:
    queue = store.queue("orders")
    ids = queue.send_many(range(2 * MANY))
    for number, delivery in enumerate(take_all(queue)):
        delivery.reject("bad") if number % 2 else delivery.ack()
    queue.send("taken", address="here")
    assert queue.redrive(limit=4) == 4
    assert queue.redrive(ids[:8]) == 0
    assert queue.redrive(outcome="failed") == 0
    assert queue.redrive() == MANY - 4
    for delivery in take_all(queue):
        delivery.reject("bad")
    assert queue.purge(outcome="rejected", limit=5) == 5
    assert queue.purge() == MANY - 4
    assert_all_legal(queue, ids)


def test_dead_letters_past_their_retention_are_purged_in_pieces(
    server: RedisServer, store: penstock.Store, clock: Clock
) -> None:
    queue = store.queue("orders", history_seconds=10, dead_letter_seconds=100)
    queue.send_many(range(MANY))
    for delivery in take_all(queue):
        delivery.reject("bad")
    for _ in range(3):
        store.sweep()
        clock.advance(seconds=20)
    assert queue.stats("default").dead == MANY
    clock.advance(seconds=100)
    assert store.sweep().purged == MANY
    assert queue.dead_letters() == []
    with redis.Redis(unix_socket_path=str(server.socket)) as client:
        assert client.zcard(f"{_prefix(store)}{{q:orders}}:kz") == 0


def _prefix(store: penstock.Store) -> str:
    assert isinstance(store.engine, RedisEngine)
    return store.engine.database.prefix
