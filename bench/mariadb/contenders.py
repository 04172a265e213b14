"""Who is measured. The peers send and take one message per call, and what they have taken is gone: they have no lease
and no ack. Every commit is on the disk when it returns. persist-queue reads a message and then deletes it, without a
lock, so two consumers take some messages twice: `waiting` tells how many were really finished."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from importlib import metadata
from queue import Empty
from typing import Protocol
from urllib.parse import urlsplit

import kombu
from huey.contrib.sql_huey import SqlStorage
from peewee import MySQLDatabase
from persistqueue import MySQLQueue
from persistqueue.exceptions import Empty as PersistQueueEmpty

from bench import penstock_session
from bench.penstock_session import QUEUE, PenstockSession
from bench.plan import payload
from bench.role import Session

# Errors of the server: a deadlock, a row that was changed since the snapshot.
UNDONE = (1213, 1020)


class PersistQueueSession:
    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        assert place.hostname is not None
        assert place.port is not None
        self.queue = MySQLQueue(place.hostname, place.username, "", place.path[1:], name=QUEUE, port=place.port)

    def send(self, count: int) -> None:
        for number in range(count):
            self.queue.put(payload(number))

    def take(self, count: int) -> int:
        for taken in range(count):
            try:
                self.queue.get(block=False)
            except PersistQueueEmpty:
                return taken
        return count

    def waiting(self) -> int:
        return int(self.queue.qsize())

    def close(self) -> None:
        """It has nothing to close: its connections end with the process."""


class HueySession:
    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        database = MySQLDatabase(place.path[1:], host=place.hostname, port=place.port, user=place.username)
        self.storage = SqlStorage(QUEUE, database=database)

    def send(self, count: int) -> None:
        for number in range(count):
            self.storage.enqueue(payload(number))

    def take(self, count: int) -> int:
        for taken in range(count):
            if self.storage.dequeue() is None:
                return taken
        return count

    def waiting(self) -> int:
        return int(self.storage.queue_size())

    def close(self) -> None:
        self.storage.close()


class KombuSession:
    def __init__(self, url: str) -> None:
        # All connections of a process are of one pool; the default allows 15.
        self.connection = kombu.Connection(
            f"sqla+{url.replace('mysql://', 'mysql+pymysql://')}", transport_options={"pool_size": 64}
        )
        self.queue = self.connection.SimpleQueue(QUEUE, no_ack=True, serializer="raw")

    def send(self, count: int) -> None:
        for number in range(count):
            self.queue.put(payload(number), content_type="application/data", content_encoding="binary")

    def take(self, count: int) -> int:
        for taken in range(count):
            try:
                self.queue.get(block=False)
            except (Empty, self.queue.Empty):
                return taken
        return count

    def waiting(self) -> int:
        return int(self.queue.qsize())

    def close(self) -> None:
        self.queue.close()
        self.connection.release()


class CountedSession(Session, Protocol):
    def waiting(self) -> int:
        """Messages that were sent and not taken."""


PENSTOCK = "penstock"
CONTENDERS: dict[str, Callable[[str], CountedSession]] = {
    PENSTOCK: PenstockSession,
    "persist-queue": PersistQueueSession,
    "huey": HueySession,
    "kombu": KombuSession,
}


def prepare(name: str, url: str) -> None:
    """The tables, made before several processes begin at once."""
    if name == PENSTOCK:
        penstock_session.prepare(url)
        return
    session = CONTENDERS[name](url)
    session.send(1)
    session.take(1)
    session.close()


def waiting(name: str, url: str) -> int:
    with closing(CONTENDERS[name](url)) as session:
        return session.waiting()


def was_undone(error: BaseException | None) -> bool:
    """Whether the server has undone a call for the sake of another one, so that it has to be made again."""
    while error is not None:
        if error.args and error.args[0] in UNDONE:
            return True
        error = error.__cause__ or error.__context__
    return False


def version(name: str) -> str:
    return metadata.version("penstock-queue" if name == PENSTOCK else name)
