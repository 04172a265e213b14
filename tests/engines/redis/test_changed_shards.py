"""A queue that is spread over slots and changes between two calls of one verb: what a shard has done is not done again,
and what it has not done goes where it belongs now."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow
import pytest

import penstock
from penstock.domain.lifecycle import Event
from penstock.domain.settlement import Settle
from penstock.engines.redis import shards
from penstock.engines.redis.connection import RedisDatabase
from penstock.engines.redis.sharded.engine import ShardedEngine
from penstock.engines.redis.sharded.layout import Layout
from tests.engines.redis.cluster import fresh_cluster_store

pytestmark = pytest.mark.xdist_group("redis_cluster")
SHARDS = 3


@pytest.fixture
def url() -> str:
    return fresh_cluster_store()


@pytest.fixture
def store(url: str) -> Iterator[penstock.Store]:
    with penstock.connect(url) as store:
        yield store


@pytest.fixture
def other(url: str) -> Iterator[penstock.Store]:
    with penstock.connect(url) as store:
        yield store


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> Callable[[penstock.Store, str, int, Callable[[], Any]], None]:
    """`before(store, verb, call, act)` acts before the n-th call of a verb that the store makes."""

    def plan(store: penstock.Store, verb: str, call: int, act: Callable[[], Any]) -> None:
        database: RedisDatabase = store.engine.database  # type: ignore[attr-defined]
        write, left = database.write, [call]

        def planned(name: str, /, *args: Any, **given: Any) -> Any:
            left[0] -= name == verb
            if name == verb and left[0] == 0:
                act()
            return write(name, *args, **given)

        monkeypatch.setattr(database, "write", planned)

    return plan


def keys() -> list[str]:
    """A key of each shard, in the order of the shards."""
    found: dict[int, str] = {}
    policy = penstock.Policy(ordered=True, shards=SHARDS)
    for number in range(100):
        found.setdefault(policy.shard_of(str(number)), str(number))
    return [found[shard] for shard in range(SHARDS)]


@pytest.mark.parametrize("shards_after", [1, SHARDS, 5])
def test_a_send_that_a_later_shard_refuses_is_made_again_for_that_shard_only(
    store: penstock.Store, other: penstock.Store, before: Callable[..., None], shards_after: int
) -> None:
    queue, same = store.queue("orders", shards=SHARDS, ordered=True), other.queue("orders")
    processed: list[object] = []

    def change() -> None:
        """What the first shard has got is processed, and then the queue becomes another one."""
        for delivery in same.receive(limit=10):
            processed.append(delivery.json())
            delivery.ack()
        if shards_after != SHARDS:
            same.delete()
        other.queue("orders", shards=shards_after, ordered=False)

    before(store, "send", 2, change)
    sent = queue.send_many([penstock.Outgoing(payload=key, key=key) for key in keys()])
    for delivery in same.receive(limit=10):
        processed.append(delivery.json())
        delivery.ack()
    assert sorted(map(str, processed)) == sorted(keys())
    assert len(set(sent)) == SHARDS


def test_a_shard_without_the_new_policy_gets_it_from_the_first_send(
    store: penstock.Store, other: penstock.Store
) -> None:
    """A client that changed `ordered` ended before all shards had the change."""
    queue = store.queue("orders", shards=SHARDS)
    database, name = store.engine.database, shards.names("orders", SHARDS)[0]  # type: ignore[attr-defined]
    stored = database.command("HGET", database.queue_key(name), "policy").decode()
    database.write("declare", name, expected=stored, policy=stored.replace('"ordered":false', '"ordered":true'))
    for sender in (queue, other.queue("orders")):
        assert len(sender.send_many([penstock.Outgoing(payload=key, key=key) for key in keys()])) == SHARDS
    assert len(queue.receive(limit=10)) == 2 * SHARDS


def test_a_member_of_a_batch_goes_where_its_key_belongs_now(
    store: penstock.Store, other: penstock.Store, before: Callable[..., None]
) -> None:
    """The batch is in one shard and the member in another, and the queue becomes ordered between the calls."""
    queue = store.queue("orders", shards=SHARDS)
    before(store, "join_send", 1, lambda: other.queue("orders", ordered=True))
    policy = penstock.Policy(ordered=True, shards=SHARDS)
    owner = policy.shard_of("nightly")
    key = keys()[(owner + 1) % SHARDS]
    elsewhere = f"00000000-0000-4000-8000-{(owner + 2) % SHARDS:012x}"
    batch = queue.batch("nightly")
    batch.send("member", key=key, id=elsewhere)
    batch.start()
    (delivery,) = other.queue("orders").receive(limit=5)
    assert (delivery.json(), (delivery.position or 0) % 1024) == ("member", policy.shard_of(key))
    delivery.ack()
    assert queue.batch("nightly").info().total == 1


# -- verbs that call all shards ----------------------------------------------------------------------------------------


def id_in(shard: int) -> str:
    """A chosen id, which is in the shard of the number whether there are three shards or five."""
    return f"00000000-0000-4000-8000-{shard:012x}"


def send_to_each(queue: penstock.Queue) -> list[str]:
    return queue.send_many([penstock.Outgoing(payload=shard, id=id_in(shard)) for shard in range(SHARDS)])


def replace(store: penstock.Store, shards_after: int) -> penstock.Queue:
    """Another queue of the same name, with messages of the same ids."""
    store.queue("orders").delete()
    queue = store.queue("orders", shards=shards_after)
    send_to_each(queue)
    return queue


def reject_all(queue: penstock.Queue) -> None:
    for delivery in queue.receive(limit=10):
        delivery.reject("no")


AFTER = pytest.mark.parametrize("shards_after", [1, 5])


@AFTER
@pytest.mark.parametrize("verb", ["redrive", "purge"])
@pytest.mark.parametrize("by_id", [False, True])
def test_no_more_dead_letters_than_the_limit(
    store: penstock.Store, other: penstock.Store, before: Callable[..., None], verb: str, by_id: bool, shards_after: int
) -> None:
    queue = store.queue("orders", shards=SHARDS)
    sent = send_to_each(queue)
    reject_all(queue)
    before(store, verb, 2, lambda: reject_all(replace(other, shards_after)))
    count = getattr(store.engine, verb)("orders", "default", sent if by_id else None, None, SHARDS)
    assert (count, len(other.queue("orders").dead_letters())) == (SHARDS, 1)


@AFTER
def test_a_removed_message_counts_once_and_is_not_removed_again(
    store: penstock.Store, other: penstock.Store, before: Callable[..., None], shards_after: int
) -> None:
    queue = store.queue("orders", shards=SHARDS)
    sent = send_to_each(queue)
    before(store, "remove", 2, lambda: replace(other, shards_after))
    assert queue.remove(sent) == SHARDS
    assert [one.json() for one in other.queue("orders").peek(limit=10)] == [0]


@AFTER
@pytest.mark.parametrize("verb", ["flush", "trim"])
def test_what_the_first_shard_did_is_counted(
    store: penstock.Store, other: penstock.Store, before: Callable[..., None], verb: str, shards_after: int
) -> None:
    queue = store.queue("orders", shards=SHARDS)
    send_to_each(queue)

    def change() -> None:
        other.queue("orders").delete()
        other.queue("orders", shards=shards_after)

    before(store, verb, 2, change)
    assert (queue.flush() if verb == "flush" else queue.trim(keep=0)) == 1


@pytest.mark.parametrize("verb", ["flush", "trim", "clear"])
def test_a_shard_that_has_answered_is_not_called_again(
    store: penstock.Store,
    other: penstock.Store,
    before: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
) -> None:
    """The queue is declared anew with as many shards, after the refusal and before the caller looks again."""
    queue = store.queue("orders", shards=SHARDS)
    send_to_each(queue)
    engine: ShardedEngine = store.engine  # type: ignore[assignment]
    learn = engine.learn

    def look(name: str) -> Layout | None:
        send_to_each(other.queue("orders", shards=SHARDS))
        return learn(name)

    monkeypatch.setattr(engine, "learn", look)
    before(store, verb, 2, other.queue("orders").delete)
    acts = {
        "flush": lambda: engine.flush("orders"),
        "trim": lambda: engine.trim("orders", upto=2**53),
        "clear": lambda: SHARDS * engine.clear("orders"),
    }
    assert acts[verb]() == SHARDS
    assert [one.json() for one in other.queue("orders").peek(limit=10)] == [0]


@AFTER
def test_a_group_that_the_first_shard_forgot_was_there(
    store: penstock.Store, other: penstock.Store, before: Callable[..., None], shards_after: int
) -> None:
    queue = store.queue("orders", shards=SHARDS)
    queue.receive(group="reports")
    before(store, "forget", 2, lambda: replace(other, shards_after))
    assert store.engine.forget("orders", "reports")


@AFTER
def test_a_consumer_is_told_of_all_leases_that_ended(
    store: penstock.Store, other: penstock.Store, before: Callable[..., None], shards_after: int
) -> None:
    queue = store.queue("orders", shards=SHARDS)
    send_to_each(queue)
    queue.register("zoe", heartbeat_seconds=60)
    assert len(queue.receive(limit=10, consumer="zoe")) == SHARDS

    def change() -> None:
        other.engine.deregister("orders", "default", "zoe")
        replace(other, shards_after).register("zoe", heartbeat_seconds=60)

    before(store, "deregister", 2, change)
    assert store.engine.deregister("orders", "default", "zoe") == 1


@AFTER
def test_what_was_settled_is_not_lost_when_a_later_shard_refuses(
    store: penstock.Store, other: penstock.Store, before: Callable[..., None], shards_after: int
) -> None:
    queue = store.queue("orders", shards=SHARDS)
    send_to_each(queue)
    taken = queue.receive(limit=10)
    before(store, "settle", 2, lambda: replace(other, shards_after))
    settles = [Settle(Event.ACK, one.id, one.position or 0, one.token) for one in taken]
    found = store.engine.settle("orders", "default", settles)
    assert [isinstance(one.error, penstock.LeaseLost) for one in found] == [False, True, True]


def test_a_release_counts_what_all_shards_sent(
    store: penstock.Store, other: penstock.Store, before: Callable[..., None]
) -> None:
    store.queue("orders", shards=SHARDS, ordered=True)
    rows = pyarrow.RecordBatch.from_pylist([{"payload": b"x", "key": key} for key in keys()])
    assert store.engine.stage("orders", "export", "0", [rows]) == SHARDS
    before(store, "release", 2, lambda: replace(other, 5))
    assert store.engine.release("orders", "export", ["0"]) == 1


def refuse() -> None:
    raise penstock.StoreUnavailable("the primary is away")


@pytest.mark.parametrize("change", ["failure", "replacement"])
def test_messages_that_the_first_shards_gave_are_taken_over(
    store: penstock.Store, other: penstock.Store, before: Callable[..., None], change: str
) -> None:
    """Otherwise nobody has them until the lease ends, and the next caller counts another attempt."""
    queue = store.queue("orders", shards=SHARDS)
    sent = send_to_each(queue)
    assert len(other.queue("orders").receive(limit=10, consumer="gone")) == SHARDS
    before(store, "take_over", 2, refuse if change == "failure" else lambda: replace(other, 5))
    receipt = store.engine.take_over("orders", "default", "zoe", sent, 60)
    assert [row[2] for row in receipt.rows] == sent[:1]
    if change == "failure":
        ((row, *more),) = [store.engine.leases("orders", "default", consumer="zoe")]
        assert (row.id, row.attempt, more) == (sent[0], 2, [])
        again = store.engine.take_over("orders", "default", "zoe", sent[1:], 60)
        assert [row[2] for row in again.rows] == sent[1:]


@pytest.mark.parametrize("call", range(2, 2 * SHARDS))
def test_a_receive_returns_what_the_first_shards_leased(
    store: penstock.Store, before: Callable[..., None], call: int
) -> None:
    """The primary of a later shard fails, within the share of one consumer or in that of the next."""
    queue = store.queue("orders", shards=SHARDS)
    for _ in range(2):
        for shard in range(SHARDS):
            queue.send(shard, id=str(uuid.uuid4())[:-12] + id_in(shard)[-12:])
    before(store, "receive", call, refuse)
    receipts = store.engine.receive_each("orders", "default", [("zoe", 3), ("adam", 3)], 60)
    assert [one.consumer for one in receipts] == ["zoe", "adam"]
    returned = [(one.consumer, row[2]) for one in receipts for row in one.rows]
    leased = [(one.consumer, one.id) for one in store.engine.leases("orders", "default")]
    assert returned
    assert sorted(returned) == sorted(leased)


# -- sweeps ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [1, 2, 3])
@pytest.mark.parametrize("shards_after", [None, 1, 5])
def test_a_sweep_passes_over_a_queue_that_is_deleted_meanwhile(
    store: penstock.Store,
    other: penstock.Store,
    before: Callable[..., None],
    call: int,
    shards_after: int | None,
) -> None:
    store.queue("orders", shards=SHARDS)
    later = store.queue("parcels", shards=SHARDS, history_seconds=0)
    later.send(1)
    later.ack_many(later.receive())

    def change() -> None:
        other.queue("orders").delete()
        if shards_after is not None:
            other.queue("orders", shards=shards_after).send("new")

    before(store, "sweep", call, change)
    assert store.sweep().trimmed == 1
    assert [one.json() for one in store.queue("orders").receive(limit=5)] == ["new"] * (shards_after is not None)
