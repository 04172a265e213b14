"""A signal handler that raises during a call to a server: the next calls, of this client and of others, go on."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import redis

import penstock
from penstock import Queue
from tests.engines.mariadb.server import fresh_database
from tests.engines.redis.server import RedisServer


class Interrupted(BaseException):
    """As KeyboardInterrupt, nothing that a library may swallow."""


def interrupt(queue: Queue, event: str, function: str, **options: Any) -> None:
    """End a send where a function begins (`call`) or has ended (`return`)."""

    def look(frame: FrameType, happened: str, _: Any) -> None:
        if happened == event and frame.f_code.co_qualname == function:
            sys.setprofile(None)
            raise Interrupted

    sys.setprofile(look)
    try:
        with pytest.raises(Interrupted):
            queue.send(b"interrupted", **options)
    finally:
        sys.setprofile(None)


@pytest.mark.database_server
def test_an_interrupted_write_of_mariadb_holds_no_queue(tmp_path: Path) -> None:
    url = fresh_database(tmp_path)
    with penstock.connect(url) as store, penstock.connect(url) as other:
        queue = store.queue("orders")
        queue.send(b"first", address="here")
        interrupt(queue, "call", "MariadbWrite.__exit__", address="there")
        sent = queue.send(b"sent", address="elsewhere")
        assert other.queue("orders").find(sent).payload == b"sent"
        other.queue("orders").send(b"not blocked", address="nowhere")


@pytest.mark.database_server
def test_the_reply_of_redis_to_an_interrupted_command_is_not_read_by_the_next() -> None:
    server = RedisServer("--save", "", "--appendonly", "no")
    server.start()
    try:
        with penstock.connect(server.url) as store:
            store.migrate()
            queue = store.queue("orders")
            queue.send(b"first")
            with redis.Redis(unix_socket_path=str(server.socket)) as operator:
                # The reply must not be there when the connection is taken again: redis-py would notice that.
                operator.execute_command("CLIENT", "PAUSE", "500", "ALL")
            interrupt(queue, "return", "AbstractConnection.send_command")
            assert queue.stats("default").dead == 0
    finally:
        server.stop()
