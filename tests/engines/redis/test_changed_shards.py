"""A queue that is spread over slots and changes between two calls of one verb: what a shard has done is not done again,
and what it has not done goes where it belongs now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import penstock
from penstock.engines.redis import shards
from penstock.engines.redis.connection import RedisDatabase
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
