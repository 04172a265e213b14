"""A PostgreSQL server whose disk is full: calls are refused with a clear error, nothing that was confirmed is lost, and
everything works when there is room again."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

import penstock
from penstock import Queue, StoreFull, StoreUnavailable
from tests.engines.postgres.server import NEW_EPOCH, TEMPLATE, Server, server

PAYLOAD = bytes(8_000)


@pytest.fixture
def small_disk(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A real file system of as many bytes as the test says, where this machine lets us mount one."""
    place = Path(tempfile.mkdtemp(prefix="penstock-full-"))
    command = ["mount", "-t", "tmpfs", "-o", f"size={request.param},mode=0777", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        place.rmdir()
        pytest.skip("this machine lets nobody mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
        place.rmdir()


@pytest.fixture
def small_database(small_disk: Path) -> Iterator[str]:
    """A store in a tablespace of its own; the write-ahead log of the server has room enough."""
    folder = small_disk / "space"
    folder.mkdir()
    running = server()
    shutil.chown(folder, Path(running.data).owner())
    name = f"full_{small_disk.name.replace('-', '_')}"
    with psycopg.connect(running.url(), autocommit=True) as admin:
        admin.execute(sql.SQL("create tablespace {} location {}").format(sql.Identifier(name), str(folder)))
        admin.execute(
            sql.SQL("create database {} template {} tablespace {} strategy file_copy").format(
                *(sql.Identifier(one) for one in (name, TEMPLATE, name))
            )
        )
        try:
            with psycopg.connect(running.url(name), autocommit=True) as connection:
                connection.execute(NEW_EPOCH)
            yield running.url(name)
        finally:
            admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
            admin.execute(sql.SQL("drop tablespace {}").format(sql.Identifier(name)))


@pytest.mark.parametrize("small_disk", [24_000_000], indirect=True)
def test_a_full_tablespace_refuses_sends_and_recovers(small_database: str, small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with penstock.connect(small_database) as store:
        queue = store.queue("orders")
        ids = queue.send_many([PAYLOAD] * 10)
        leased = queue.receive(limit=5)
        fill(ballast)
        ids += send_until(queue, StoreFull)
        with suppress(StoreFull):  # a page that has room is not refused
            queue.ack_many(leased)
        counts = queue.stats("default")
        assert counts.total == len(ids)
        ballast.unlink()
        ids += queue.send_many([PAYLOAD])
        assert queue.ack_many(leased) == len(leased)
        assert everything(queue) == set(ids) - {delivery.id for delivery in leased}
        assert queue.stats("default").done == len(ids)
        assert all(check.level != "error" for check in store.doctor())


@pytest.mark.parametrize("small_disk", [180_000_000], indirect=True)
def test_a_server_without_room_for_its_log_stops_and_loses_nothing(small_disk: Path) -> None:
    """PostgreSQL ends itself when the write-ahead log has no room: it must, to keep its promise."""
    running = Server(
        small_disk / "server", durable=True, settings={"max_wal_size": "64MB", "restart_after_crash": "off"}
    )
    try:
        with penstock.connect(running.url()) as store:
            store.migrate()
            queue = store.queue("orders")
            ids = queue.send_many([PAYLOAD] * 10)
            with psycopg.connect(running.url(), autocommit=True) as admin:
                # What is left of the segment is all that there is room for.
                admin.execute("select pg_switch_wal()")
            fill(small_disk / "ballast")
            ids += send_until(queue, (StoreFull, StoreUnavailable))
        (small_disk / "ballast").unlink()
        # It may have ended itself, or still be about to.
        with suppress(RuntimeError):
            running.stop("immediate")
        running.start()
        with penstock.connect(running.url()) as store:
            queue = store.queue("orders")
            ids += queue.send_many([PAYLOAD])
            received = everything(queue)
            assert set(ids) <= received
            assert all(check.level != "error" for check in store.doctor())
    finally:
        running.remove()


def fill(ballast: Path) -> None:
    """Take all the room that is left."""
    with ballast.open("wb") as file, suppress(OSError):
        while True:
            file.write(bytes(100_000))
            file.flush()


def send_until(queue: Queue, refusals: type[Exception] | tuple[type[Exception], ...]) -> list[str]:
    """Send until there is no room, and return the ids of the sends that returned."""
    ids: list[str] = []
    for _ in range(5_000):
        try:
            ids += queue.send_many([PAYLOAD] * 2)
        except refusals as error:
            return ids if "database" in str(error) else pytest.fail(f"does not name the store: {error}")
    pytest.fail("the small disk never filled up")


def everything(queue: Queue) -> set[str]:
    found: set[str] = set()
    while deliveries := queue.receive(limit=100):
        found |= {delivery.id for delivery in deliveries}
        queue.ack_many(deliveries)
    return found
