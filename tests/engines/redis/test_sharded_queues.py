"""Queues that are spread over the slots of a cluster, one for each shard."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator

import pytest

import penstock
from penstock.engines.contract import Mark
from penstock.engines.redis import shards
from penstock.engines.redis.sharded.engine import ShardedEngine
from tests.conformance.clock import Clock
from tests.engines.redis.cluster import fresh_cluster_store, shared_cluster

# One process runs them all, on one cluster.
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
def queue(store: penstock.Store) -> penstock.Queue:
    return store.queue("orders", shards=SHARDS)


def engine_of(store: penstock.Store) -> ShardedEngine:
    assert isinstance(store.engine, ShardedEngine)
    return store.engine


def id_in(shard: int) -> str:
    """A new id that belongs to the shard."""
    return f"{str(uuid.uuid4())[:-12]}{1024 * 7 + shard:012x}"


def send_to(queue: penstock.Queue, shard: int, payload: object, **options: int) -> str:
    return queue.send(payload, id=id_in(shard), **options)  # type: ignore[arg-type]  # any JSON value


def positions(queue: penstock.Queue) -> list[int]:
    return [one.position or 0 for one in queue.engine.browse(queue.name, 0, None, 1000)]


# -- where messages are ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 6, 12])
def test_the_shards_are_on_all_primaries_alike(store: penstock.Store, count: int) -> None:
    queue = store.queue("orders", shards=count)
    for number in range(2 * count):
        queue.send(number)
    database = engine_of(store).database
    found = Counter[int]()
    for name in shards.names("orders", count):
        node = shared_cluster().owner(database.queue_key(name))
        found[node.port] += node.command("XLEN", f"{database.queue_key(name)}:log")
    assert sorted(found.values()) == [2 * count // 3] * 3


def test_the_slots_of_many_shards_have_equal_distances() -> None:
    for count in (2, 5, 64, 200):
        slots = sorted(shards._slot(shards.tag(name)) for name in shards.names("}any {name", count))
        around = [*slots[1:], slots[0] + shards.SLOTS]
        gaps = [after - before for before, after in zip(slots, around, strict=True)]
        assert max(gaps) <= shards.SLOTS // count + max(16, shards.SLOTS // count // 16) + 1


def test_a_client_that_does_not_know_of_the_shards_finds_out(url: str, store: penstock.Store) -> None:
    with penstock.connect(url) as other:
        assert other.queue("orders").peek() == []
        queue = store.queue("orders", shards=SHARDS)
        sent = [other.queue("orders").send(number) for number in range(6)]
        assert {one.id for one in queue.receive(limit=6)} == set(sent)
        assert other.queue("orders").stats("default").in_progress == 6


def test_a_queue_that_is_in_use_stays_in_one_slot(store: penstock.Store) -> None:
    queue = store.queue("orders")
    queue.send(1)
    assert store.queue("orders", shards=SHARDS).policy().shards == SHARDS
    queue.send(2)
    assert sorted(one.json() for one in queue.receive(limit=5)) == [1, 2]
    assert engine_of(store).parts("orders") == ["orders"]


def test_the_number_of_slots_is_fixed(queue: penstock.Queue, store: penstock.Store) -> None:
    with pytest.raises(penstock.InvalidPolicy, match="from 3 to 2"):
        store.queue("orders", shards=2)
    queue.delete()
    queue = store.queue("orders", shards=2)
    queue.send_many([1, 2])
    assert len(queue.receive(limit=5)) == 2


def test_an_ordered_queue_takes_no_addresses(store: penstock.Store) -> None:
    queue = store.queue("orders", shards=SHARDS, ordered=True)
    with pytest.raises(penstock.InvalidInput, match="address 'desk'"):
        queue.send_many([1, penstock.Outgoing(payload=2, address="desk")])
    assert queue.stats() == {}


def test_a_refused_message_stops_those_of_other_shards(queue: penstock.Queue) -> None:
    queue.send("first", address="desk")
    others = [penstock.Outgoing(payload=shard, id=id_in(shard)) for shard in range(SHARDS)]
    with pytest.raises(penstock.DuplicateAddress):
        queue.send_many([*others, penstock.Outgoing(payload="second", address="desk")])
    with pytest.raises(penstock.PayloadTooLarge):
        queue.send_many([*others, penstock.Outgoing(payload=b"x" * (17 * 1024 * 1024))])
    assert [one.json() for one in queue.receive(limit=10)] == ["first"]


def test_the_order_is_asked_for_before_a_shard_is_chosen(url: str, store: penstock.Store) -> None:
    """A client that does not know yet that the queue has become ordered."""
    queue = store.queue("orders", shards=SHARDS)
    with penstock.connect(url) as other:
        other.queue("orders").send("before", key="a")
        with pytest.raises(penstock.InvalidPolicy, match="ordered of queue 'orders'"):
            store.queue("orders", ordered=True)
        queue.receive()[0].ack()
        store.queue("orders", ordered=True)
        for number in range(6):
            other.queue("orders").send(number, key="a")
        assert [one.json() for one in queue.receive(limit=10)] == list(range(6))


# -- positions -------------------------------------------------------------------------------------------------------


def read_all(queue: penstock.Queue) -> int:
    return positions(queue)[-1]


def settled(queue: penstock.Queue) -> int:
    return queue.engine.settled(queue.name)


def sought(queue: penstock.Queue) -> int:
    return queue.engine.seek(queue.name, "reader", "end")


@pytest.mark.parametrize("reader", [read_all, settled, sought])
def test_no_message_appears_behind_a_reader(queue: penstock.Queue, reader: object) -> None:
    """Law 8: the shard that got no message yet must not give out a position that was passed."""
    assert callable(reader)
    for number in range(5):
        send_to(queue, 0, number)
    reached = reader(queue)
    for shard in range(SHARDS):
        send_to(queue, shard, "later")
    later = [one for one in positions(queue) if one > reached]
    assert len(later) == SHARDS
    assert len(positions(queue)) == 5 + SHARDS


def test_a_group_at_the_end_of_all_shards_gets_only_what_comes_later(queue: penstock.Queue) -> None:
    for number in range(7):
        send_to(queue, number % 2, number)
    queue.seek("reader", "end")
    send_to(queue, 2, "later")
    assert [one.json() for one in queue.receive(limit=10, group="reader")] == ["later"]
    queue.seek("reader", "start")
    assert len(queue.receive(limit=10, group="reader")) == 7


def test_the_oldest_messages_of_all_shards_are_trimmed(queue: penstock.Queue) -> None:
    for number in range(12):
        queue.send(number)
    before = positions(queue)
    assert queue.engine.trim("orders", keep=5) == 7
    assert positions(queue) == before[7:]


# -- receiving -------------------------------------------------------------------------------------------------------


def test_a_better_priority_in_another_shard_comes_first(queue: penstock.Queue) -> None:
    for shard in range(SHARDS):
        send_to(queue, shard, f"later {shard}", priority=4)
    for shard in range(SHARDS):
        send_to(queue, shard, f"sooner {shard}", priority=1)
    for _ in range(SHARDS):
        (delivery,) = queue.receive()
        assert delivery.json().startswith("sooner")
    assert len(queue.receive(limit=10)) == SHARDS


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_retry_of_a_better_priority_in_another_shard_comes_first(queue: penstock.Queue, shard: int) -> None:
    send_to(queue, shard, "retry", priority=1)
    queue.receive()[0].nak(delay_seconds=0)
    for other in range(SHARDS):
        send_to(queue, other, "later", priority=4)
    assert queue.receive()[0].json() == "retry"


def test_a_receive_that_goes_on_gives_no_message_an_older_token(queue: penstock.Queue, url: str) -> None:
    """Shard 1 has given out newer tokens than the one that a receive brings from shard 0."""
    clock = Clock()
    send_to(queue, 1, "again and again")
    with penstock.connect(url, clock=clock, random=lambda: 0.0) as other:
        tokens = []
        for _ in range(3):
            (delivery,) = other.queue("orders").receive()
            tokens.append(delivery.token)
            delivery.nak(delay_seconds=0)
    send_to(queue, 0, "first")
    with penstock.connect(url, clock=clock, random=lambda: 0.0) as other:
        taken = other.queue("orders").receive(limit=5) + other.queue("orders").receive(limit=5)
        assert [one.json() for one in taken] == ["first", "again and again"]
        assert taken[1].token > max(tokens)


def test_messages_of_several_shards_are_settled_together(queue: penstock.Queue) -> None:
    for turn in range(4):
        for shard in range(SHARDS):
            send_to(queue, shard, turn, priority=turn % 2)
        deliveries = queue.receive(limit=10)
        assert len({one.token for one in deliveries}) == 1
        assert queue.ack_many(deliveries) == SHARDS
    assert queue.stats("default").done == 4 * SHARDS


def test_a_token_settles_nothing_that_was_delivered_again(queue: penstock.Queue, url: str) -> None:
    clock = Clock()
    with penstock.connect(url, clock=clock) as other:
        queue = other.queue("orders")
        for shard in range(SHARDS):
            send_to(queue, shard, shard)
        first = queue.receive(limit=SHARDS, lease_seconds=5)
        clock.advance(seconds=6)
        again = queue.receive(limit=SHARDS)
        assert sorted(one.id for one in again) == sorted(one.id for one in first)
        with pytest.raises(penstock.LeaseLost, match="3 of 3"):
            queue.ack_many(first)
        assert queue.ack_many(again) == SHARDS


def test_a_receive_that_fits_into_bytes_fits_with_what_all_shards_have(queue: penstock.Queue) -> None:
    for number in range(9):
        send_to(queue, number % SHARDS, "x" * 998)
    most = queue.engine.fitting("orders", "default", 9, 4000)
    assert 1 <= most <= 4
    assert queue.engine.fitting("orders", "default", 9, 27_000) == 9


def test_a_consumer_that_vanished_gives_back_what_it_had_in_every_shard(url: str) -> None:
    clock = Clock()
    with penstock.connect(url, clock=clock) as store:
        queue = store.queue("orders", shards=SHARDS)
        queue.register("zoe", heartbeat_seconds=5)
        for shard in range(SHARDS):
            send_to(queue, shard, shard)
        assert len(queue.receive(limit=5, consumer="zoe", lease_seconds=1000)) == SHARDS
        clock.advance(seconds=11)
        assert store.sweep().removed_consumers == 1
        assert queue.consumers() == []
        assert [one.attempt for one in queue.receive(limit=5, consumer="adam")] == [2] * SHARDS


# -- what a crash leaves -----------------------------------------------------------------------------------------------


def test_a_sweep_deletes_the_shards_that_a_crash_has_left(queue: penstock.Queue, store: penstock.Store) -> None:
    for shard in range(SHARDS):
        send_to(queue, shard, shard)
    database, names = engine_of(store).database, shards.names("orders", SHARDS)
    database.write("delete", names[0], scheduled="")
    assert database.command("EXISTS", f"{database.queue_key(names[1])}:log") == 1
    store.sweep()
    assert [database.command("EXISTS", f"{database.queue_key(name)}:log") for name in names] == [0, 0, 0]
    assert store.queues() == []


def test_shards_that_a_crash_has_left_are_not_those_of_a_new_queue(
    queue: penstock.Queue, store: penstock.Store
) -> None:
    for shard in range(SHARDS):
        send_to(queue, shard, "old")
    engine_of(store).database.write("delete", shards.names("orders", SHARDS)[0], scheduled="")
    again = store.queue("orders", shards=SHARDS)
    for shard in range(SHARDS):
        send_to(again, shard, "new")
    assert [one.json() for one in again.receive(limit=10)] == ["new"] * SHARDS


def test_a_deletion_leaves_the_shards_of_a_queue_that_was_declared_meanwhile(
    queue: penstock.Queue, store: penstock.Store, url: str
) -> None:
    send_to(queue, 1, "old")
    engine = engine_of(store)
    engine.database.write("delete", shards.names("orders", SHARDS)[0], scheduled="")
    with penstock.connect(url) as other:
        again = other.queue("orders", shards=SHARDS)
        for shard in range(SHARDS):
            send_to(again, shard, "new")
        engine._delete_shards("orders", SHARDS)
        assert [one.json() for one in again.receive(limit=10)] == ["new"] * SHARDS


@pytest.mark.parametrize("change", ["deleted", "forgotten"])
def test_a_group_that_was_removed_is_created_in_every_shard_again(
    queue: penstock.Queue, store: penstock.Store, url: str, change: str
) -> None:
    with penstock.connect(url) as other:
        reader = other.queue("orders")
        send_to(queue, 0, "old")
        reader.ack_many(reader.receive(limit=10, group="reports"))
        if change == "deleted":
            queue.delete()
            store.queue("orders", shards=SHARDS)
        else:
            store.engine.forget("orders", "reports")
            queue.flush()
        for shard in range(SHARDS):
            send_to(queue, shard, "new")
        assert len(reader.receive(group="reports")) == 1
        stats = queue.stats(group="reports")
        assert (stats.in_progress, stats.available) == (1, SHARDS - 1)


def test_a_sweep_repeats_a_change_of_the_policy_that_a_crash_cut_off(
    queue: penstock.Queue, store: penstock.Store
) -> None:
    for shard in range(SHARDS):
        send_to(queue, shard, shard)
    database, name = engine_of(store).database, shards.names("orders", SHARDS)[0]
    stored = database.command("HGET", database.queue_key(name), "policy").decode()
    paused = stored.replace('"paused":false', '"paused":true')
    database.write("declare", name, expected=stored, policy=paused)
    store.sweep()
    assert queue.receive(limit=10) == []
    queue.resume()
    assert len(queue.receive(limit=10)) == SHARDS


def test_a_late_copy_of_the_policy_changes_nothing(queue: penstock.Queue, store: penstock.Store) -> None:
    send_to(queue, 1, "paused")
    database, names = engine_of(store).database, shards.names("orders", SHARDS)
    key = database.queue_key("orders")
    store.queue("orders", max_retries=2)
    stored, revision = database.command("HMGET", key, "policy", "revision")
    queue.pause()
    database.write("shard_policy", names[1], policy=stored.decode(), revision=int(revision))
    assert queue.receive(limit=5) == []


# -- windows ---------------------------------------------------------------------------------------------------------


def test_a_window_has_parts_in_every_shard_and_can_be_cut(queue: penstock.Queue) -> None:
    for number in range(30):
        send_to(queue, number % SHARDS, number)
    engine = queue.engine
    end = engine.horizon("orders")
    parts = engine.window("orders", 0, end, 2)
    assert sorted(part.witness[0] for part in parts) == [0, 1, 2]
    found = [row for part in parts for batch in engine.read(part) for row in batch.to_pylist()]
    assert sorted(int(row["payload"]) for row in found) == list(range(30))
    assert sorted(row["position"] for row in found) == positions(queue)
    assert {row["queue"] for row in found} == {"orders"}
    assert {row["shard"] for row in found} == {0, 1, 2}
    reached: Mark = 0
    sizes = []
    while reached != end:
        following = engine.cut("orders", reached, end, 7)
        sizes.append(sum(part.count for part in engine.window("orders", reached, following, 4)))
        reached = following
    assert sizes == [7, 7, 7, 7, 2]


def test_rows_of_a_single_shard_have_as_many_parts_as_were_asked_for(queue: penstock.Queue) -> None:
    queue.send_many(range(100))
    engine = queue.engine
    parts = engine.window("orders", engine.earliest("orders"), engine.horizon("orders"), 4)
    assert len(parts) == 4
    assert sum(batch.num_rows for part in parts for batch in engine.read(part)) == 100


@pytest.mark.parametrize("verb", ["window", "cut", "advance"])
def test_a_mark_is_good_in_a_process_that_does_not_know_of_the_shards(
    queue: penstock.Queue, url: str, verb: str
) -> None:
    for shard in range(SHARDS):
        send_to(queue, shard, shard)
    start, end = queue.engine.earliest("orders"), queue.engine.horizon("orders")
    with penstock.connect(url) as other:
        if verb == "window":
            assert len(other.engine.window("orders", start, end, 1)) == SHARDS
        elif verb == "cut":
            assert other.engine.cut("orders", start, end, None) == end
        else:
            other.engine.advance("orders", "reports", end)
            assert queue.engine.stream_position("orders", "reports") == end


def test_a_mark_of_a_shard_that_lost_messages_is_refused(queue: penstock.Queue, store: penstock.Store) -> None:
    """As after the promotion of a replica that had not received the last messages of one shard."""
    for shard in range(SHARDS):
        send_to(queue, shard, shard)
    end = queue.engine.horizon("orders")
    database, name = engine_of(store).database, shards.names("orders", SHARDS)[1]
    database.command("HSET", database.queue_key(name), "last", 0)
    database.command("DEL", f"{database.queue_key(name)}:log")
    with pytest.raises(penstock.LogDiverged):
        queue.engine.window("orders", 0, end, 1)


# -- batches and schedules ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [False, True])
def test_a_batch_with_members_in_every_shard_ends_once(store: penstock.Store, ordered: bool) -> None:
    queue = store.queue("orders", shards=SHARDS, ordered=ordered)
    batch = queue.batch("nightly")
    batch.set_end("all done")
    for shard in range(SHARDS):
        batch.send(shard, id=id_in(shard), key=f"key {shard}")
    assert queue.receive(limit=10) == []
    batch.start()
    members = queue.receive(limit=10)
    assert sorted(one.json() for one in members) == [0, 1, 2]
    assert batch.remaining == SHARDS
    for delivery in members:
        delivery.ack()
    assert [one.json() for one in queue.receive(limit=10)] == ["all done"]
    assert (batch.state, batch.remaining) == ("finished", 0)


def test_a_schedule_sends_each_tick_once() -> None:
    clock = Clock()
    url = fresh_cluster_store()
    with penstock.connect(url, clock=clock) as store, penstock.connect(url, clock=clock) as other:
        queue = store.queue("orders", shards=SHARDS)
        store.schedule("hourly", "0 * * * *", "orders", "tick", catch_up="all")
        clock.advance(seconds=3 * 3600)
        store.sweep()
        other.sweep()
        assert len(queue.receive(limit=10)) == 3
