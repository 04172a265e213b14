"""The server goes away: `pg_ctl stop -m immediate` under load is a crash, from which it recovers by its write-ahead
log. What was acknowledged is there afterwards, and clients go on by themselves."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock import Queue, StoreUnavailable
from tests.engines.postgres.server import Server

PATIENCE_SECONDS = 60.0
Act = Callable[[Queue, int, int], set[bytes]]


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A durable server of its own, because it is stopped."""
    with tempfile.TemporaryDirectory(prefix="penstock-restart-") as folder:
        Path(folder).chmod(0o755)
        server = Server(Path(folder) / "cluster", durable=True)
        yield server
        server.stop("immediate")


def test_a_crash_of_the_server_loses_nothing_that_was_acknowledged(own_server: Server) -> None:
    url = own_server.url()
    with penstock.connect(url) as store:
        store.migrate()
        store.queue("orders", lease_seconds=1, max_retries=None)
    sent: set[bytes] = set()
    acked: set[bytes] = set()
    over = threading.Event()
    failures: list[BaseException] = []
    workers = [
        threading.Thread(target=_work, args=(_send, url, over, sent, number, failures)) for number in range(2)
    ] + [threading.Thread(target=_work, args=(_take, url, over, acked, number, failures)) for number in range(2)]
    for worker in workers:
        worker.start()
    for _ in range(3):
        _wait_for_more(acked, 200, failures)
        own_server.stop("immediate")
        own_server.start()
    _wait_for_more(acked, 200, failures)
    over.set()
    for worker in workers:
        worker.join()
    assert not failures, failures
    with penstock.connect(url) as store:
        queue = store.queue("orders")
        ends = time.monotonic() + PATIENCE_SECONDS
        left: set[bytes] = set()
        while time.monotonic() < ends:
            deliveries = queue.receive(limit=1000, wait_seconds=2)
            queue.ack_many(deliveries)
            left.update(one.payload for one in deliveries)
            if not deliveries and queue.stats("default").in_progress == 0:
                break
        # A send or ack whose reply was lost in a crash may have happened; an acknowledged one must have.
        finished = {one.message.payload for one in queue.archive(limit=1_000_000)}
        assert sent <= finished
        assert acked | left <= finished
        stats = queue.stats("default")
        assert stats.total == stats.done
        assert all(check.level != "error" for check in store.doctor())


def _work(
    act: Act, url: str, over: threading.Event, noted: set[bytes], number: int, failures: list[BaseException]
) -> None:
    try:
        with penstock.connect(url) as store:
            queue = store.queue("orders")
            turn = 0
            while not over.is_set():
                turn += 1
                try:
                    noted.update(act(queue, number, turn))
                except StoreUnavailable:
                    continue  # the server is down; the same store works again afterwards
    except BaseException as error:
        failures.append(error)


def _send(queue: Queue, number: int, turn: int) -> set[bytes]:
    payloads = [f"{number}/{turn}/{place}".encode() for place in range(5)]
    queue.send_many(payloads)
    return set(payloads)


def _take(queue: Queue, number: int, turn: int) -> set[bytes]:
    done = set()
    for delivery in queue.receive(limit=20, consumer=f"c{number}", wait_seconds=0.2):
        try:
            delivery.ack()
        except penstock.LeaseLost:
            continue  # the receive was undone by the crash or its lease ended: the message is delivered again
        done.add(delivery.payload)
    return done


def _wait_for_more(noted: set[bytes], count: int, failures: list[BaseException]) -> None:
    goal = len(noted) + count
    _wait_until(lambda: len(noted) >= goal, failures)


def _wait_until(is_so: Callable[[], bool], failures: list[BaseException]) -> None:
    ends = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert not failures, failures
        assert time.monotonic() < ends, "nothing moves any more"
        time.sleep(0.01)


def test_a_store_that_cannot_reach_its_server_says_so(own_server: Server) -> None:
    with penstock.connect(own_server.url(), busy_seconds=1) as store:
        store.migrate()
        queue = store.queue("orders")
        message_id = queue.send(b"before")
        own_server.stop("immediate")
        acts: tuple[Callable[[], object], ...] = (
            lambda: queue.send(b"lost"),
            queue.receive,
            queue.stats,
            lambda: queue.find(message_id),
        )
        for act in acts:
            with pytest.raises(StoreUnavailable):
                act()
        own_server.start()
        _wait_until(lambda: _is_back(queue), [])
        assert [one.payload for one in queue.receive(limit=10)] == [b"before"]


def _is_back(queue: Queue) -> bool:
    try:
        queue.stats()
    except StoreUnavailable:
        return False
    return True
