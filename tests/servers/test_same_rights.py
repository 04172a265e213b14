"""The same action needs the same right through the Redis protocol and over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock import AsyncStore, connect_async
from penstock.servers.access import Right, Users, hash_token, make_token, make_user
from penstock.servers.http import application
from penstock.servers.http.api import ROUTES
from penstock.servers.http.server import HttpListener
from penstock.servers.resp.server import Server
from penstock.settings import HttpSettings, RespSettings
from tests.servers.resp.client import Client

pytestmark = pytest.mark.anyio
ID = "019a8c3e-7b2d-7abc-8def-00000000ffff"
CRON = "0 0 * * *"
TOKENS = {right.value: make_token() for right in Right if right is not Right.NOTHING}
# A command, and the request that asks for the same: method, path, body.
SAME: list[tuple[tuple[Any, ...], str, str, Any]] = [
    (("QSEND", "q", "1"), "POST", "queues/q/messages", {"payload": 1}),
    (("QRECEIVE", "q"), "POST", "queues/q/receive", {}),
    (("QNAK", "q", "default", ID, "TOKEN", 1), "POST", f"queues/q/messages/{ID}/nak", {"token": 1}),
    (("QREJECT", "q", "default", ID, "TOKEN", 1), "POST", f"queues/q/messages/{ID}/reject", {"token": 1}),
    (("QEXTEND", "q", "default", ID, 9, "TOKEN", 1), "POST", f"queues/q/messages/{ID}/extend", {"seconds": 9}),
    (("QPEEK", "q"), "GET", "queues/q/peek", None),
    (("QFIND", "q", ID), "GET", f"queues/q/messages/{ID}", None),
    (("QAUDIT", "q", ID), "GET", f"queues/q/messages/{ID}/audit", None),
    (("QEXPLAIN", "q", ID), "GET", f"queues/q/messages/{ID}/explain", None),
    (("QQUEUES",), "GET", "queues", None),
    (("QSTATUS", "q"), "GET", "queues/q/stats", None),
    (("QCONSUMERS", "q"), "GET", "queues/q/consumers", None),
    (("QDEAD", "q"), "GET", "queues/q/dead_letters", None),
    (("QREDRIVE", "q"), "POST", "queues/q/redrive", {}),
    (("QPURGE", "q"), "POST", "queues/q/purge", {}),
    (("QPAUSE", "q"), "POST", "queues/q/pause", None),
    (("QRESUME", "q"), "POST", "queues/q/resume", None),
    (("QFLUSH", "q"), "POST", "queues/q/flush", None),
    (("QSEEK", "q", "default", "start"), "POST", "queues/q/groups/default/seek", {"position": 0}),
    (("QPOLICY", "q"), "GET", "queues/q/policy", None),
    (("QPOLICY", "q", "max_retries", 3), "PATCH", "queues/q/policy", {"max_retries": 3}),
    (("QBATCH", "LIST", "q"), "GET", "queues/q/batches", None),
    (("QBATCH", "INFO", "q", "b"), "GET", "queues/q/batches/b", None),
    (("QBATCH", "OPEN", "q", "b"), "PUT", "queues/q/batches/b", {}),
    (("QBATCH", "START", "q", "b"), "POST", "queues/q/batches/b/start", None),
    (("QBATCH", "CANCEL", "q", "b"), "POST", "queues/q/batches/b/cancel", None),
    (("QSCHEDULE", "LIST"), "GET", "schedules", None),
    (("QSCHEDULE", "ADD", "s", CRON, "q", "1"), "PUT", "schedules/s", {"cron": CRON, "queue": "q", "payload": 1}),
    (("QSCHEDULE", "PAUSE", "s"), "POST", "schedules/s/pause", None),
    (("QSCHEDULE", "RESUME", "s"), "POST", "schedules/s/resume", None),
    (("QSCHEDULE", "REMOVE", "s"), "DELETE", "schedules/s", None),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def users() -> Users:
    return Users([make_user(name, None, ["*"], [name], token_hash=hash_token(one)) for name, one in TOKENS.items()])


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[AsyncStore]:
    async with await connect_async(f"sqlite:///{tmp_path}/store.db") as store:
        yield store


@pytest.fixture
async def resp_port(store: AsyncStore, users: Users) -> AsyncIterator[int]:
    server = Server(store, users, RespSettings())
    yield await server.listen("127.0.0.1", 0)
    await server.close()


@pytest.fixture
async def http(store: AsyncStore, users: Users) -> AsyncIterator[httpx.AsyncClient]:
    settings = HttpSettings(port=0)
    listener = HttpListener(application(store, users=users, settings=settings, dashboard=False), settings, None)
    await listener.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{listener.port}/api/v1/", timeout=60) as opened:
        yield opened
    await listener.stop()


async def test_the_same_action_needs_the_same_right(store: AsyncStore, resp_port: int, http: httpx.AsyncClient) -> None:
    differing = []
    for right, token in TOKENS.items():
        redis = await Client.connect(resp_port)
        assert await redis("AUTH", right, token) == b"OK"
        for words, method, path, body in SAME:
            # Both find the same, whatever those before have changed.
            await store.queue("q", max_retries=7)
            await store.schedule("s", CRON, "q", b"x")
            by_command = str(await redis(*words)).startswith("NOPERM")
            answer = await http.request(method, path, json=body, headers={"authorization": f"Bearer {token}"})
            if by_command is not (answer.status_code == 403):
                differing.append((right, words, "refused" if by_command else "allowed", answer.status_code))
        redis.close()
    assert differing == []


def test_every_kind_of_action_is_compared() -> None:
    compared = {(method, path.replace(ID, "{id}")) for _, method, path, _ in SAME}
    assert len(compared) == len(SAME)
    assert len(SAME) > 0.5 * len(ROUTES)
