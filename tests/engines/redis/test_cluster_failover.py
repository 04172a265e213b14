"""A primary of a cluster that is killed under load: nothing that was confirmed is lost, and clients recover."""

from __future__ import annotations

import itertools
import threading

import pytest

import penstock
from tests.engines.redis.cluster import RedisServers, await_until

NODE_TIMEOUT_SECONDS = 2


class Work:
    """Sends and acks in a thread, and remembers what was confirmed. Each payload is sent once."""

    def __init__(self, queue: penstock.Queue, size: int = 3) -> None:
        self.queue = queue
        self.size = size
        self.sent, self.acked = dict[int, str](), set[str]()
        # The ids under which a payload came.
        self.ids: dict[int, set[str]] = {}
        # What was received after its ack was confirmed.
        self.returned = list[str]()
        self.unconfirmed = 0
        self._numbers = itertools.count()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.start, self._join = self._thread.start, self._thread.join

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                payloads = [next(self._numbers) for _ in range(self.size)]
                self.sent.update(zip(payloads, self.queue.send_many(payloads), strict=True))
                self.receive(limit=self.size - 1)
            except penstock.StoreUnavailable:
                self.unconfirmed += 1

    def receive(self, limit: int) -> int:
        deliveries = self.queue.receive(limit=limit)
        for delivery in deliveries:
            self.ids.setdefault(delivery.json(), set()).add(delivery.id)
            if delivery.id in self.acked:
                self.returned.append(delivery.id)
        self.queue.ack_many(deliveries)
        self.acked.update(delivery.id for delivery in deliveries)
        return len(deliveries)

    def end(self) -> None:
        self._is_over.set()
        self._join()


def test_a_killed_primary_loses_nothing_that_a_replica_has() -> None:
    with RedisServers(NODE_TIMEOUT_SECONDS) as servers:
        url = f"{servers.url}?durability=replicas=1&confirm_seconds=1"
        with penstock.connect(url, busy_seconds=60) as store:
            store.migrate()
            # One queue in one slot, and one that is spread over the primaries.
            works = [Work(store.queue("orders")), Work(store.queue("spread", shards=3))]
            for work in works:
                work.start()
            await_until(lambda: all(len(work.acked) > 20 for work in works), "messages to be processed")
            victim = servers.owner("penstock{q:orders}")
            victim.kill()
            await_until(lambda: servers.owner("penstock{q:orders}") is not victim, "a replica to be promoted")
            for work in works:
                work.end()
        for work in works:
            check_nothing_is_lost(servers, work)
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


def check_nothing_is_lost(servers: RedisServers, work: Work) -> None:
    """Or sent twice, or received after its ack."""
    # The promoted replica has no replica of its own.
    with penstock.connect(servers.url, busy_seconds=60) as store:
        queue = work.queue = store.queue(work.queue.name)
        ids = list(work.sent.values())
        states = zip(ids, store.engine.states(queue.name, "default", ids), strict=True)
        found = {one: state.state for one, state in states if state is not None}
        assert len(found) == len(work.sent)
        assert {found.get(one, penstock.State.SUCCEEDED) for one in work.acked} == {penstock.State.SUCCEEDED}
        while work.receive(limit=1000):
            pass
        assert [found for found in work.ids.values() if len(found) > 1] == []
        assert work.returned == []
        assert queue.send("after the failover")
        assert queue.receive()


def check_that_a_cluster_without_a_slot_says_so(servers: RedisServers) -> None:
    servers.owner("penstock{q:orders}").kill()
    living = next(node for node in servers.nodes if node.process.poll() is None)
    await_until(lambda: living.state == "fail", "the cluster to notice")
    with penstock.connect(servers.url, busy_seconds=1) as store:
        with pytest.raises(penstock.StoreUnavailable):
            store.queue("orders").send(1)
