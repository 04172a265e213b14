"""A producer whose connection breaks when the server has committed: nobody hears of it, and nothing is sent twice."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

import penstock
from tests.engines.postgres.server import fresh_database


class Link:
    """Passes on what client and server say; once armed, it breaks in place of the reply to a commit."""

    def __init__(self, url: str) -> None:
        info = psycopg.conninfo.conninfo_to_dict(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._target = info
        self.url = psycopg.conninfo.make_conninfo(
            url, host="127.0.0.1", hostaddr="127.0.0.1", port=self._listener.getsockname()[1]
        )
        self.is_armed = False
        self.broken = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(client, self._connect()), daemon=True).start()

    def _connect(self) -> socket.socket:
        host, port = str(self._target.get("host") or "127.0.0.1"), str(self._target.get("port") or 5432)
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{host}/.s.PGSQL.{port}")
            return server
        return socket.create_connection((host, int(port)))

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        both = selectors.DefaultSelector()
        both.register(client, selectors.EVENT_READ, server)
        both.register(server, selectors.EVENT_READ, client)
        with client, server:
            while True:
                for key, _ in both.select():
                    data = key.fileobj.recv(65536)  # type: ignore[union-attr]  # both are sockets
                    is_reply = key.fileobj is server and self.is_armed
                    if not data or (is_reply and self._is_last(data)):
                        return
                    key.data.sendall(data)

    def _is_last(self, data: bytes) -> bool:
        """Ready for queries again, outside a transaction: what was asked for is committed."""
        if not data.endswith(b"Z\x00\x00\x00\x05I"):
            return False
        self.is_armed = False
        self.broken.set()
        return True


@pytest.fixture
def direct() -> str:
    return fresh_database()


@pytest.fixture
def link(direct: str) -> Iterator[Link]:
    opened = Link(direct)
    yield opened
    opened.close()


def as_url(conninfo: str) -> str:
    info = psycopg.conninfo.conninfo_to_dict(conninfo)
    return f"postgresql://{info['user']}@{info['host']}:{info['port']}/{info['dbname']}"


@pytest.mark.parametrize("count", [1, 2, 8, 9, 300])
@pytest.mark.parametrize("options", [{}, {"address": "a"}, {"id": "00000000-0000-4000-8000-000000000007"}], ids=str)
def test_a_lost_reply_sends_nothing_twice(direct: str, link: Link, count: int, options: dict[str, Any]) -> None:
    url = as_url(link.url)
    assert urlsplit(url).hostname == "127.0.0.1"
    with penstock.connect(url, listen=False) as store:
        queue = store.queue("q")
        queue.send(b"warm", id="00000000-0000-4000-8000-000000000001")
        producer = queue.producer(batch_size=1000, linger_seconds=3600)
        taken = [producer.send(number, **(options if number == count // 2 else {})) for number in range(count)]
        link.is_armed = True
        with pytest.raises(penstock.StoreUnavailable):
            producer.flush()
        assert link.broken.is_set()
        assert not any(one.is_sent for one in taken)
        producer.send("more")
        producer.close()
        assert all(one.is_sent for one in taken)
    with penstock.connect(direct) as store:
        found = [message.json() for message in store.queue("q").peek(1000)[1:]]
    assert found == [*range(count), "more"]


def test_a_transaction_that_is_still_under_way_is_waited_for(direct: str) -> None:
    """Its reply was lost, but it commits later than the producer asks whether it has."""
    from penstock.client.producer_batch import Gathered, ProducerBatch
    from penstock.domain.message import draft

    consignment = ProducerBatch([Gathered(draft(number)) for number in range(40)])
    with penstock.connect(direct) as store, psycopg.connect(direct) as slow:
        queue = store.queue("q")
        queue.send(b"warm")
        [part] = consignment._parts
        part.assign_ids(store.engine)
        first, *others = [one.draft for one in part.gathered]
        store.engine.send("q", [first], slow)
        store.engine.send("q", others, slow)
        part._was_tried = True
        trying = threading.Thread(target=consignment.put, args=(store.engine, "q"))
        trying.start()
        with psycopg.connect(direct, autocommit=True) as watching:
            while not watching.execute("select exists (select from pg_locks where not granted)").fetchone()[0]:  # type: ignore[index]
                trying.join(0.01)
                assert trying.is_alive(), "it did not wait"
        slow.commit()
        trying.join()
        assert [message.json() for message in queue.peek(100)[1:]] == list(range(40))
