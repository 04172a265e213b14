"""A primary of a cluster that is killed under load: nothing that was confirmed is lost, and clients recover."""

from __future__ import annotations

import threading

import pytest

import penstock
from tests.engines.redis.cluster import RedisServers, await_until

NODE_TIMEOUT_SECONDS = 2


def test_a_killed_primary_loses_nothing_that_a_replica_has() -> None:
    with RedisServers(NODE_TIMEOUT_SECONDS) as servers:
        url = f"{servers.url}?durability=replicas=1&confirm_seconds=1"
        with penstock.connect(url, busy_seconds=60) as store:
            store.migrate()
            queue = store.queue("orders")
            sent, acked = list[str](), set[str]()
            is_over = threading.Event()

            def work() -> None:
                while not is_over.is_set():
                    try:
                        sent.extend(queue.send_many(range(3)))
                        for delivery in queue.receive(limit=2):
                            delivery.ack()
                            acked.add(delivery.id)
                    except penstock.StoreUnavailable:
                        continue

            worker = threading.Thread(target=work)
            worker.start()
            await_until(lambda: len(acked) > 20, "messages to be processed")
            victim = servers.owner("penstock{q:orders}")
            victim.kill()
            await_until(lambda: servers.owner("penstock{q:orders}") is not victim, "a replica to be promoted")
            is_over.set()
            worker.join()
        check_nothing_is_lost(servers, sent, acked)
        check_that_a_cluster_without_a_slot_says_so(servers)


def test_a_primary_that_joins_gets_the_functions_with_the_first_call() -> None:
    with RedisServers(node_timeout_seconds=60) as servers, penstock.connect(servers.url, busy_seconds=60) as store:
        store.migrate()
        queue = store.queue("orders")
        queue.send(1)
        newcomer = servers.join()
        assert newcomer.command("FUNCTION", "LIST") == []
        servers.move_slot("penstock{q:orders}", newcomer)
        queue.send(2)
        assert [one.json() for one in queue.receive(limit=5)] == [1, 2]


def check_nothing_is_lost(servers: RedisServers, sent: list[str], acked: set[str]) -> None:
    # The promoted replica has no replica of its own.
    with penstock.connect(servers.url, busy_seconds=60) as store:
        queue = store.queue("orders")
        states = zip(sent, store.engine.states("orders", "default", sent), strict=True)
        found = {one: state.state for one, state in states if state is not None}
        assert len(found) == len(sent)
        assert {found[one] for one in acked} == {penstock.State.SUCCEEDED}
        assert queue.send("after the failover")
        assert queue.receive()


def check_that_a_cluster_without_a_slot_says_so(servers: RedisServers) -> None:
    servers.owner("penstock{q:orders}").kill()
    living = next(node for node in servers.nodes if node.process.poll() is None)
    await_until(lambda: living.state == "fail", "the cluster to notice")
    with penstock.connect(servers.url, busy_seconds=1) as store:
        with pytest.raises(penstock.StoreUnavailable):
            store.queue("orders").send(1)
