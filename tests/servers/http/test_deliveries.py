"""Receiving and settling: waiting, leases, and clients that go away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import httpx
import pytest

from penstock import AsyncStore
from penstock.client.aio.call import Call, Operation
from penstock.client.aio.executor import AsyncExecutor
from penstock.engines.contract import Receipt
from penstock.servers.http import Application, application
from penstock.servers.http.api import deliveries
from penstock.servers.http.server import HttpListener
from penstock.servers.shared_receive import ReceiveRequest
from penstock.settings import HttpSettings
from tests.servers.http.api_client import Api, done, problem, waiting_for

pytestmark = pytest.mark.anyio


async def test_every_settlement(api: Api) -> None:
    for number in range(4):
        await api.send("q", number)
    deliveries = await api.receive("q", limit=10, consumer="c1", lease_seconds=60)
    assert [one["attempt"] for one in deliveries] == [1, 1, 1, 1]
    assert len({one["token"] for one in deliveries}) == 1
    states = [
        done(await api.settle(deliveries[0], "ack"))["state"],
        done(await api.settle(deliveries[1], "nak", delay_seconds=0, reason="again"))["state"],
        done(await api.settle(deliveries[2], "reject", reason="never"))["state"],
        done(await api.settle(deliveries[3], "reschedule", delay_seconds=3600))["state"],
    ]
    assert states == ["succeeded", "ready", "rejected", "held"]
    (again,) = await api.receive("q")
    assert (again["payload"], again["attempt"]) == (1, 2)


async def test_many_at_once_with_a_result_for_each(api: Api) -> None:
    for number in range(3):
        await api.send("q", number)
    first, second, third = await api.receive("q", limit=3)
    done(await api.settle(third, "ack"))
    unknown = "019a8c3e-7b2d-7abc-8def-00000000ffff"
    body = [
        {"id": first["id"], "token": first["token"], "action": "ack"},
        {"id": second["id"], "token": second["token"] + 1, "action": "ack"},
        {"id": third["id"], "token": third["token"], "action": "nak"},
        {"id": unknown, "token": 1, "action": "ack"},
        {"id": second["id"], "token": second["token"], "action": "reject", "reason": "no", "group": "default"},
    ]
    results = (await api.post("queues", "q", "settle", settlements=body))["results"]
    assert [one["ok"] for one in results] == [True, False, False, False, True]
    assert [one["error"] for one in results] == [None, "LeaseLost", "LeaseLost", "NotFound", None]
    assert results[4]["state"] == "rejected"
    assert results[3]["id"] == unknown


async def test_lost_lease_answers_409_with_the_reason(api: Api) -> None:
    await api.send("q", 1)
    (delivery,) = await api.receive("q")
    done(await api.settle(delivery, "ack"))
    assert done(await api.settle(delivery, "ack"))["state"] == "succeeded", "the same again is harmless"
    response = await api.settle(delivery, "nak")
    assert delivery["id"] in problem(response, 409)
    assert response.json()["error"] == "LeaseLost"
    assert "lost" in problem(await api.settle(delivery, "extend", seconds=60), 409)


async def test_a_position_of_another_message_settles_nothing(api: Api, store: AsyncStore) -> None:
    await api.send("q", 1)
    await (await store.queue("q")).send(2, id="00000000-0000-4000-8000-000000000001")
    first, second = await api.receive("q", limit=2)
    for one, other in ((first, second), (second, first)):
        for action, more in (("ack", {}), ("nak", {}), ("reject", {}), ("reschedule", {}), ("extend", {"seconds": 60})):
            told = await api.settle({**one, "position": other["position"]}, action, **more)
            assert (told.status_code, told.json()["error"]) == (400, "InvalidInput")
            assert one["id"] in told.json()["detail"]
    stats = await (await store.queue("q")).stats(group="default")
    assert (stats.in_progress, stats.done) == (2, 0)
    for one in (first, second):
        assert done(await api.settle(one, "ack"))["state"] == "succeeded"


async def test_an_ordered_queue_is_settled_in_order(api: Api, store: AsyncStore) -> None:
    queue = await store.queue("line", ordered=True)
    await queue.send_many([1, 2])
    first, second = await api.receive("line", limit=2)
    refused = await api.settle(second, "ack")
    assert (refused.status_code, refused.json()["error"]) == (409, "OutOfOrder")
    for one in (first, second):
        done(await api.settle(one, "ack"))


async def test_extend(api: Api) -> None:
    await api.send("q", 1)
    (delivery,) = await api.receive("q", lease_seconds=5)
    ends = done(await api.settle(delivery, "extend", seconds=500))["lease_ends_at"]
    assert ends > delivery["lease_ends_at"]


async def test_groups_receive_independently(api: Api) -> None:
    await api.send("q", 1)
    (one,) = await api.receive("q", group="a")
    (other,) = await api.receive("q", group="b/c")
    done(await api.settle(one, "ack"))
    done(await api.settle(other, "reject"))
    groups = (await api.get("queues", "q", "stats"))["groups"]
    assert (groups["a"]["done"], groups["b/c"]["dead"]) == (1, 1)


# -- waiting ---------------------------------------------------------------------------------------------------------


async def test_waiting_receive_gets_a_new_message(api: Api, store: AsyncStore) -> None:
    await store.queue("q", paused=False)
    waiting = asyncio.create_task(api.receive("q", wait_seconds=20))
    await waiting_for(store, 1)
    await api.send("q", "at last")
    (delivery,) = await waiting
    assert delivery["payload"] == "at last"


@pytest.mark.parametrize("wait_seconds", [0, 5])
async def test_receive_from_an_unknown_queue_answers_404_and_creates_none(
    api: Api, store: AsyncStore, wait_seconds: float
) -> None:
    await api.send("orders", 1)
    answer = await api.ask("POST", "queues", "ordres", "receive", body={"wait_seconds": wait_seconds})
    assert "there is no queue 'ordres'; did you mean 'orders'?" in problem(answer, 404)
    assert [info.name for info in await store.queues()] == ["orders"]


async def test_waiting_receive_returns_nothing_after_its_time(api: Api, store: AsyncStore) -> None:
    await store.queue("q", paused=False)
    assert await api.receive("q", wait_seconds=0.05) == []


@pytest.mark.parametrize("settings", [HttpSettings(port=0, max_wait_seconds=0.05)])
async def test_wait_is_capped_by_the_setting(api: Api, store: AsyncStore) -> None:
    await store.queue("q", paused=False)
    began = time.monotonic()
    assert await api.receive("q", wait_seconds=1000) == []
    assert time.monotonic() - began < 60


async def test_disconnected_client_leases_no_message(api: Api, server: HttpListener, store: AsyncStore) -> None:
    await api.send("q", "make the queue known")
    done(await api.settle((await api.receive("q"))[0], "ack"))
    body = b'{"wait_seconds": 30}'
    for _ in range(5):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(
            b"POST /api/v1/queues/q/receive HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        await waiting_for(store, 1)
        writer.close()
        await waiting_for(store, 0)
    sent = await api.send("q", "for somebody who is there")
    (delivery,) = await api.receive("q")
    assert (delivery["id"], delivery["attempt"]) == (sent, 1)


class Leaving:
    """A client that hangs up when `gone` is set; whatever is said to it then is noted."""

    def __init__(self, app: Application, body: bytes) -> None:
        self.app = app
        self.body = body
        self.gone = asyncio.Event()
        self.heard: list[str] = []
        self._asked = False

    async def ask(self) -> None:
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        path = "/api/v1/queues/q/receive"
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
        await self.app({**scope, "headers": headers, "client": ("127.0.0.1", 5)}, self._receive, self._send)

    async def _receive(self) -> dict[str, object]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, str]) -> None:
        self.heard.append(message["type"])


async def test_messages_received_for_a_disconnected_client_are_released(store: AsyncStore) -> None:
    queue = await store.queue("q")
    sent = await queue.send(b"x")
    client = Leaving(application(store, dashboard=False), b"{}")
    client.gone.set()
    await client.ask()
    assert client.heard == []
    (delivery,) = await queue.receive(wait_seconds=60)
    assert (delivery.id, delivery.attempt) == (sent, 1)


async def test_message_that_arrives_during_a_disconnect_is_released(
    store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs up in the very moment in which there is something for it."""
    queue = await store.queue("q", paused=False)
    client = Leaving(application(store, dashboard=False), b'{"wait_seconds": 30}')
    receive = deliveries._receive

    async def received(executor: AsyncExecutor, operation: Operation, request: ReceiveRequest) -> Receipt:
        receipt = await receive(executor, operation, request)
        if receipt.rows:
            client.gone.set()
        return receipt

    monkeypatch.setattr(deliveries, "_receive", received)
    waiting = asyncio.create_task(client.ask())
    await waiting_for(store, 1)
    sent = await queue.send(b"x")
    await waiting
    assert client.heard == []
    (delivery,) = await queue.receive(wait_seconds=60)
    assert (delivery.id, delivery.attempt) == (sent, 1)


async def test_waiting_for_an_address(api: Api, store: AsyncStore) -> None:
    await api.send("q", 1, address="home")
    (delivery,) = await api.receive("q")
    waiting = asyncio.create_task(api.get("queues", "q", "addresses", "home", wait_seconds=20))
    await waiting_for(store, 1)
    done(await api.settle(delivery, "reject", reason="broken"))
    assert (await waiting)["outcome"] == "rejected"
    assert (await waiting)["reason"] == "broken"


async def test_shutdown_answers_waiting_receives(
    server: HttpListener, client: httpx.AsyncClient, store: AsyncStore
) -> None:
    await store.queue("q", paused=False)
    waiting = asyncio.create_task(Api(client).receive("q", wait_seconds=30))
    await waiting_for(store, 1)
    began = time.monotonic()
    await server.stop()
    assert await waiting == []
    assert time.monotonic() - began < 9, "it did not wait for the grace to end"


async def test_concurrent_requests_share_transactions(api: Api, store: AsyncStore) -> None:
    sizes: list[int] = []
    run = store.executor._writes._run

    def counting(calls: Sequence[Call]) -> None:
        sizes.append(sum(len(call.callers) for call in calls))
        run(calls)

    store.executor._writes._run = counting
    await asyncio.gather(*(api.send("q", number) for number in range(60)))
    assert len(sizes) < 60, sizes
    assert sum(sizes) == 60
