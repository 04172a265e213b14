"""A power cut right after a call: what it acknowledged is on the disk."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from tests.chaos.synced_disk import synced_disk
from tests.engines.postgres.server import Server

Act = Callable[[penstock.Store, penstock.Delivery], object]
See = Callable[[penstock.Store], object]


def _work(store: penstock.Store) -> penstock.Queue:
    return store.queue("work")


def _ended(store: penstock.Store) -> list[tuple[str, int]]:
    return sorted(_work(store).stats("default").outcomes.items())


def _batch_state(store: penstock.Store) -> list[str]:
    return [batch.state for batch in _work(store).batches()]


# A call, and what must be seen of it afterwards: the same as in the store that had no power cut.
CALLS: dict[str, tuple[Act, See]] = {
    "send": (lambda store, _: _work(store).send(b"new"), lambda store: _work(store).count()),
    "send_many": (lambda store, _: _work(store).send_many([b"1", b"2"]), lambda store: _work(store).count()),
    "delayed send": (lambda store, _: _work(store).send(b"n", delay_seconds=60), lambda store: _work(store).count()),
    "producer": (lambda store, _: send_by_producer(store), lambda store: _work(store).count()),
    "ack": (lambda _, leased: leased.ack(), _ended),
    "ack_many": (lambda store, leased: _work(store).ack_many([leased]), _ended),
    "nak": (lambda _, leased: leased.nak("why", 0), lambda store: _work(store).stats("default").redo),
    "reject": (lambda _, leased: leased.reject("never"), _ended),
    "reschedule": (lambda _, leased: leased.reschedule(60), lambda store: _work(store).stats("default").held),
    "extend": (
        lambda _, leased: leased.extend(600),
        lambda store: [one.ends_at for one in _work(store).leases()],
    ),
    "batch end": (lambda store, _: run_batch(store), _batch_state),
    "declare": (lambda store, _: store.queue("work", max_retries=99), lambda store: _work(store).policy()),
    "sweep": (lambda store, _: store.sweep(), lambda store: len(_work(store).dead_letters())),
    "at_most_once receive": (
        lambda store, _: store.queue("once").receive(),
        lambda store: store.queue("once").stats("default").in_progress,
    ),
    "remove": (lambda store, leased: _work(store).remove([leased.id]), lambda store: _work(store).count()),
    "schedule": (
        lambda store, _: store.schedule("daily", "0 0 * * *", "work", b"tick"),
        lambda store: [one.name for one in store.schedules()],
    ),
}


def send_by_producer(store: penstock.Store) -> None:
    with _work(store).producer() as producer:
        producer.send(b"gathered")


def run_batch(store: penstock.Store) -> None:
    batch = _work(store).batch("nightly")
    batch.set_end(b"end")
    batch.start()


def prepare(store: penstock.Store) -> penstock.Delivery:
    """One message in flight, one that expires at once, and one to be handed out at most once."""
    store.queue("once", delivery="at_most_once").send(b"once")
    _work(store).send(b"short", ttl_seconds=0.000_001, priority=9)
    _work(store).send(b"leased")
    (leased,) = _work(store).receive(lease_seconds=300)
    return leased


@pytest.mark.parametrize("name", CALLS)
def test_sqlite_has_on_the_disk_what_a_call_has_answered_for(name: str, tmp_path: Path) -> None:
    act, see = CALLS[name]
    with synced_disk() as disk, penstock.connect(f"sqlite:///{tmp_path}/store.db") as store:
        leased = prepare(store)
        before = see(store)
        syncs = disk.syncs
        act(store, leased)
        assert disk.syncs > syncs, "the call returned without a sync"
        expected = see(store)
        assert expected != before, "unknown: the call is not seen"
        survivor = disk.cut_power(tmp_path / "after")
    with penstock.connect(f"sqlite:///{survivor}") as store:
        assert see(store) == expected


def test_an_at_least_once_receive_that_sqlite_forgot_cannot_be_settled(tmp_path: Path) -> None:
    """It need not be on the disk: the message is handed out again, and the old token has no rights."""
    with synced_disk() as disk, penstock.connect(f"sqlite:///{tmp_path}/store.db") as store:
        _work(store).send(b"one")
        (lost,) = _work(store).receive(lease_seconds=300)
        survivor = disk.cut_power(tmp_path / "after")
    with penstock.connect(f"sqlite:///{survivor}") as store:
        (again,) = _work(store).receive(lease_seconds=300)
        assert (again.id, again.attempt) == (lost.id, 1)
        (refused,) = _work(store).settle([penstock.Ack(lost)])
        assert isinstance(refused.error, penstock.LeaseLost)
        again.ack()


@pytest.fixture(scope="module")
def lazy_server() -> Iterator[Server]:
    """A server that writes its log only for commits that wait for it: a crash loses the others."""
    with tempfile.TemporaryDirectory(prefix="penstock-power-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        lazy = {
            "wal_writer_delay": "10s",
            "wal_writer_flush_after": "1GB",
            "autovacuum": "off",
            "bgwriter_delay": "10s",
        }
        server = Server(Path(folder) / "cluster", durable=True, settings=lazy)
        try:
            with penstock.connect(server.url()) as store:
                store.migrate()
            yield server
        finally:
            server.remove()


# Each crash and recovery takes a while: one call for each way to commit.
@pytest.mark.parametrize("name", ["send", "ack", "reject", "at_most_once receive"])
def test_postgres_has_on_the_disk_what_a_call_has_answered_for(name: str, lazy_server: Server) -> None:
    act, see = CALLS[name]
    with penstock.connect(lazy_server.url(), listen=False) as store:
        for queue in store.queues():
            store.queue(queue.name).delete()
        for schedule in store.schedules():
            store.unschedule(schedule.name)
        leased = prepare(store)
        before = see(store)
        act(store, leased)
        lazy_server.stop("immediate")
    lazy_server.start()
    with penstock.connect(lazy_server.url(), listen=False) as store:
        assert see(store) != before, "a crash lost what the call had answered for"


def test_the_lazy_server_forgets_an_at_least_once_receive(lazy_server: Server) -> None:
    """Shows that the test above can fail."""
    with penstock.connect(lazy_server.url(), listen=False) as store:
        store.queue("control").send(b"one")
        (lost,) = store.queue("control").receive(lease_seconds=300)
        lazy_server.stop("immediate")
    lazy_server.start()
    with penstock.connect(lazy_server.url(), listen=False) as store:
        (again,) = store.queue("control").receive(lease_seconds=300)
        assert (again.id, again.attempt) == (lost.id, 1)
        with pytest.raises(penstock.LeaseLost):
            lost_in(store, lost)


def lost_in(store: penstock.Store, lost: penstock.Delivery) -> None:
    (settled,) = store.queue("control").settle([penstock.Ack(lost)])
    if settled.error is not None:
        raise settled.error
