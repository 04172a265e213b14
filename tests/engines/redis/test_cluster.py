"""A store on a cluster: URLs, functions on every primary, nodes that join, and slots that move under load."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.engines.redis import RedisEngine, notices, shards
from penstock.engines.redis.connection import RedisDatabase
from tests.conformance.clock import Clock
from tests.engines.redis.cluster import await_until, fresh_cluster_store, shared_cluster
from tests.engines.redis.server import RedisServer
from tests.ports import LOOPBACK, free_port

# One process runs them all, on one cluster.
pytestmark = pytest.mark.xdist_group("redis_cluster")


@pytest.fixture
def store() -> Iterator[penstock.Store]:
    with penstock.connect(fresh_cluster_store()) as store:
        yield store


def database_of(store: penstock.Store) -> RedisDatabase:
    assert isinstance(store.engine, RedisEngine)
    return store.engine.database


def names_on_every_primary(store: penstock.Store) -> list[str]:
    """Names of queues, one for each primary."""
    found: dict[int, str] = {}
    for number in range(1000):
        node = shared_cluster().owner(f"{database_of(store).prefix}{{q:orders {number}}}")
        found.setdefault(node.port, f"orders {number}")
        if len(found) == len(shared_cluster().primaries):
            return list(found.values())
    raise AssertionError("a thousand names are in the slots of two primaries")


def test_queues_of_one_store_are_on_all_primaries(store: penstock.Store) -> None:
    names = names_on_every_primary(store)
    for name in names:
        store.queue(name).send(name)
    assert sorted(queue.name for queue in store.queues()) == sorted(names)
    for name in names:
        assert (
            shared_cluster()
            .owner(f"{database_of(store).prefix}{{q:{name}}}")
            .command("EXISTS", f"{database_of(store).prefix}{{q:{name}}}:log")
        )
        (delivery,) = store.queue(name).receive()
        delivery.ack()
    assert store.sweep().reclaimed == 0


def test_a_cluster_url_for_a_single_server_is_refused() -> None:
    port = free_port()
    with RedisServer("--save", "", "--port", str(port), "--bind", LOOPBACK):
        with penstock.connect(f"redis+cluster://{LOOPBACK}:{port}/") as store:
            with pytest.raises(penstock.InvalidUrl, match="not a cluster: connect with redis://"):
                store.migrate()


def test_the_url_of_a_single_server_for_a_node_of_a_cluster_is_refused() -> None:
    node = shared_cluster().primaries[0]
    with penstock.connect(f"redis://{LOOPBACK}:{node.port}/0?prefix=single") as store:
        with pytest.raises(penstock.InvalidUrl, match=r"redis\+cluster://"):
            store.queue("orders").send(1)
        with pytest.raises(penstock.InvalidUrl, match=r"redis\+cluster://"):
            store.migrate()


def test_a_cluster_has_one_database() -> None:
    with pytest.raises(penstock.InvalidUrl, match="database 0"):
        penstock.connect("redis+cluster://localhost:6379/1")


def test_a_cluster_that_is_not_there_is_unavailable() -> None:
    with penstock.connect(f"redis+cluster://{LOOPBACK}:{free_port()},{LOOPBACK}:{free_port()}/") as store:
        with pytest.raises(penstock.StoreUnavailable, match="cannot be reached"):
            store.queue("orders").send(1)


def test_one_of_the_hosts_is_enough() -> None:
    node = shared_cluster().primaries[1]
    hosts = f"{LOOPBACK}:{free_port()},{LOOPBACK}:{node.port}"
    with penstock.connect(f"redis+cluster://{hosts}/?prefix=hosts") as store:
        assert store.queue("orders").send(1)


def test_functions_are_loaded_into_a_primary_that_lost_them(store: penstock.Store) -> None:
    queue = store.queue("orders")
    node = shared_cluster().owner(f"{database_of(store).prefix}{{q:orders}}")
    queue.send(1)
    node.command("FUNCTION", "FLUSH")
    assert queue.send(2)
    assert [one.json() for one in queue.receive(limit=5)] == [1, 2]
    assert store.migrate() == []


def test_a_send_to_a_batch_of_another_queue_that_was_cut_off_is_dropped_by_a_sweep() -> None:
    clock = Clock()
    with penstock.connect(fresh_cluster_store(), clock=clock) as store:
        database = database_of(store)
        batch = store.queue("orders").batch("nightly")
        batch.set_end("all done")
        batch.send(1)
        number, _ = database.write("join_open", "emails", [b"2"], options={1: {"b": "nightly", "bq": "orders"}})
        joining = {"sender": "emails", "number": number.decode(), "name": "nightly", "count": 1}
        batch_number, label, _, (member,) = database.write("join_add", "orders", (), **joining)
        batch.start()
        assert batch.remaining == 2
        clock.advance(seconds=61)
        store.sweep()
        assert batch.remaining == 1
        ref = {"q": "orders", "n": batch_number, "m": member.decode(), "l": label.decode()}
        with pytest.raises(penstock.StoreUnavailable, match="given up"):
            database.write("join_send", "emails", (), number=number.decode(), refs={1: ref}, states={1: "running"})
        with pytest.raises(penstock.StoreUnavailable, match="given up"):
            database.write("join_add", "orders", (), **joining)
        (delivery,) = store.queue("orders").receive(limit=5)
        delivery.ack()
        assert [one.json() for one in store.queue("orders").receive(limit=5)] == ["all done"]


@pytest.mark.parametrize("removed", ["orders", "emails"])
def test_a_send_to_a_batch_that_is_removed_meanwhile_leaves_nothing_held(store: penstock.Store, removed: str) -> None:
    database = database_of(store)
    batch = store.queue("orders").batch("nightly")
    batch.set_end("all done")
    number, _ = database.write("join_open", "emails", [b"2"], options={1: {"b": "nightly", "bq": "orders"}})
    joining = {"sender": "emails", "number": number.decode(), "name": "nightly", "count": 1}
    batch_number, label, state, (member,) = database.write("join_add", "orders", (), **joining)
    store.queue(removed).delete()
    ref = {"q": "orders", "n": batch_number, "m": member.decode(), "l": label.decode()}
    sending = {"number": number.decode(), "refs": {1: ref}, "states": {1: state.decode()}}
    if removed == "emails":
        with pytest.raises(penstock.NotFound):
            database.write("join_send", "emails", (), **sending)
        batch.start()
        assert [one.json() for one in store.queue("orders").receive()] == ["all done"]
    else:
        database.write("join_send", "emails", (), **sending)
        stats = store.queue("emails").stats("default")
        assert (stats.held, stats.available, stats.outcomes["cancelled"]) == (0, 0, 1)
        assert database.command("HGETALL", f"{database.queue_key('emails')}:bv") in ({}, [])


RIGHTS = [
    "+fcall", "+function|load", "+function|list", "+info", "+config|get", "+publish", "+subscribe", "+ping", "+time",
    "+wait", "+@read", "+@write", "+cluster|slots", "+command", "~rights*", "&rights:*",
]  # fmt: skip


def test_the_rights_of_the_documentation_are_enough() -> None:
    page = (Path(__file__).parents[3] / "docs" / "redis-engine.md").read_text()
    assert [right for right in RIGHTS if right[0] == "+" and right not in page] == []
    url = grant(RIGHTS)
    with penstock.connect(f"{url}?prefix=rights&durability=replicas=1&confirm_seconds=60") as store:
        assert store.migrate() == []
        queue = store.queue("orders")
        queue.send(1)
        queue.receive()[0].ack()
        store.sweep()
        assert {check.name for check in store.doctor()} >= {"server", "schema", "replicas"}


@pytest.mark.parametrize("right", ["+cluster|slots", "+command", "+fcall"])
def test_a_missing_right_is_named(right: str) -> None:
    url = grant([one for one in RIGHTS if one != right])
    with penstock.connect(f"{url}?prefix=rights") as store:
        with pytest.raises(penstock.StoreReadOnly, match=right.strip("+").partition("|")[0]):
            store.queue("orders").send(1)


def test_a_wrong_password_is_told() -> None:
    url = grant(RIGHTS).replace(":right@", ":wrong@")
    with penstock.connect(f"{url}?prefix=rights") as store:
        with pytest.raises(penstock.StoreUnavailable, match="login"):
            store.queue("orders").send(1)


def grant(rights: list[str]) -> str:
    """The URL of a user with these rights."""
    for node in shared_cluster().nodes:
        node.command("ACL", "SETUSER", "app", "reset", "on", ">right", *rights)
    return shared_cluster().url.replace("://", "://app:right@")


@pytest.mark.parametrize("change", ["start", "ack", "cancel"])
def test_a_sweep_delivers_what_a_client_could_not(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client ends between its call and the one that would tell the other queue."""
    url = fresh_cluster_store()
    with penstock.connect(url) as store, penstock.connect(url) as other:
        orders, emails = store.queue("orders"), store.queue("emails")
        batch = orders.batch("nightly")
        batch.set_end("all done")
        batch.set_abort("aborted")
        batch.send("mail", queue="emails")
        with monkeypatch.context() as patch:
            if change == "start":
                patch.setattr(notices, "deliver", lambda *_: None)
            if change != "cancel":
                batch.start()
            patch.setattr(notices, "deliver", lambda *_: None)
            if change == "ack":
                emails.receive()[0].ack()
            elif change == "cancel":
                batch.cancel()
        assert (batch.remaining, orders.peek(), emails.receive()) == (1, [], [])
        other.sweep()
        if change == "start":
            emails.receive()[0].ack()
        other.sweep()
        assert batch.remaining == 0
        assert [one.json() for one in orders.receive(limit=5)] == ["aborted" if change == "cancel" else "all done"]


@pytest.mark.parametrize(("durability", "count"), [("memory", 1), ("replicas=1", 1), ("memory", 3)])
def test_a_slot_that_moves_under_load_loses_and_repeats_nothing(durability: str, count: int) -> None:
    url = f"{fresh_cluster_store()}&durability={durability}&confirm_seconds=60"
    with penstock.connect(url, busy_seconds=60) as store:
        queue = store.queue("orders", shards=count)
        moved = shards.names("orders", count)[1] if count > 1 else "orders"
        sent: list[str] = []
        done: list[str] = []
        has_moved = threading.Event()

        def send() -> None:
            while not has_moved.is_set() or len(sent) < 50:
                sent.append(queue.send(len(sent), address=f"desk {len(sent)}"))

        def work() -> None:
            while not has_moved.is_set() or len(done) < len(sent) or sender.is_alive():
                for delivery in queue.receive(limit=10):
                    delivery.ack()
                    done.append(delivery.id)

        sender, worker = threading.Thread(target=send), threading.Thread(target=work)
        threads = (sender, worker)
        for thread in threads:
            thread.start()
        servers, key = shared_cluster(), database_of(store).queue_key(moved)
        home = servers.owner(key)
        try:
            # There and back: other tests use the same cluster.
            for target in (next(node for node in servers.primaries if node is not home), home):
                await_until(lambda: len(done) > 5, "messages to be processed")
                servers.move_slot(key, target)
        finally:
            has_moved.set()
            for thread in threads:
                thread.join()
        assert sorted(done) == sorted(sent)
        stats = queue.stats("default")
        assert (stats.total, stats.done) == (len(sent), len(sent))
