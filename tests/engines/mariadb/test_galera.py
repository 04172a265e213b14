"""A Galera cluster: writers on several nodes keep the laws, and clients leave a node that is killed or cut off.

The tests run with PENSTOCK_TEST_GALERA=1: three servers that compare every commit take two cores for the better part of
a minute.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from tests.engines.mariadb.cluster import NODES, GaleraCluster
from tests.engines.mariadb.load import Load

IS_ASKED_FOR = bool(os.environ.get("PENSTOCK_TEST_GALERA"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("galera"),
    pytest.mark.skipif(not IS_ASKED_FOR, reason="three servers for a minute: PENSTOCK_TEST_GALERA=1 runs it"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[GaleraCluster]:
    with tempfile.TemporaryDirectory(prefix="penstock-galera-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        running = GaleraCluster(folder)
        yield running
        running.remove()


def test_writers_on_three_nodes_give_out_every_message_once_and_in_order(cluster: GaleraCluster) -> None:
    urls = [cluster.url(number) for number in range(NODES)]
    with penstock.connect(urls[0]) as store:
        store.queue("shared", lease_seconds=600)
    received: Counter[bytes] = Counter()
    lock = threading.Lock()
    over = threading.Event()

    def receive(url: str) -> None:
        with penstock.connect(url, busy_seconds=60) as store:
            queue = store.queue("shared")
            while True:
                is_last = over.is_set()
                deliveries = queue.receive(limit=5)
                with lock:
                    received.update(one.payload for one in deliveries)
                queue.ack_many(deliveries)
                if is_last and not deliveries:
                    return

    followed: list[bytes] = []

    def follow(url: str) -> None:
        position = 0
        with penstock.connect(url) as store:
            while True:
                is_last = over.is_set()
                for message in store.engine.browse("shared", position, None, 1000):
                    assert message.position is not None
                    position = message.position
                    followed.append(message.payload)
                if is_last:
                    return

    readers = [threading.Thread(target=receive, args=(url,)) for url in urls]
    readers += [threading.Thread(target=follow, args=(url,)) for url in urls[-1:]]
    load = Load("shared", urls)
    for reader in readers:
        reader.start()
    load.await_more(60)
    load.stop()
    over.set()
    for reader in readers:
        reader.join(120)
    assert load.refusals == []
    assert received == Counter(load.acknowledged)
    assert Counter(followed) == Counter(load.acknowledged)


def test_the_last_members_of_a_batch_on_two_nodes_send_one_end_message(cluster: GaleraCluster) -> None:
    with (
        penstock.connect(cluster.url(0), busy_seconds=60) as first,
        penstock.connect(cluster.url(1), busy_seconds=60) as second,
    ):
        for number in range(10):
            batch = first.queue("ends").batch(f"batch {number}")
            batch.send(b"1", queue="left")
            batch.send(b"2", queue="right")
            batch.set_end(b"end")
            batch.start()
            deliveries = first.queue("left").receive() + second.queue("right").receive()
            acks = [threading.Thread(target=delivery.ack) for delivery in deliveries]
            for ack in acks:
                ack.start()
            for ack in acks:
                ack.join(120)
            [end] = first.queue("ends").receive(limit=10)
            end.ack()


def test_clients_of_a_killed_node_go_on_with_another(cluster: GaleraCluster) -> None:
    load = Load("killed", [cluster.url(), cluster.url(), cluster.url(1, 2, 0)])
    load.await_more(30)
    cluster.kill(0)
    load.await_more(30)
    load.stop()
    cluster.nodes[0].start()
    for number in range(NODES):
        load.check(cluster.url(number))


def test_clients_leave_a_node_that_lost_the_others(cluster: GaleraCluster) -> None:
    load = Load("cut off", [cluster.url(), cluster.url(), cluster.url(2, 1)])
    load.await_more(30)
    with cluster.cut_off(0):
        with penstock.connect(cluster.url(0)) as store, pytest.raises(penstock.StoreUnavailable, match="majority"):
            store.queue("cut off").send(b"alone")
        load.await_more(30)
    load.stop()
    for number in range(NODES):
        load.check(cluster.url(number))
