"""Numbers for Prometheus, and whether the server is alive."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock import AsyncStore
from penstock.servers.http.sampler import Sampler
from penstock.settings import HttpSettings
from tests.servers.http.api_client import Api, done

pytestmark = pytest.mark.anyio
NASTY = 'a"b\\c\n{x="y"} 1'.replace("\n", " ")


async def metrics(client: httpx.AsyncClient) -> dict[tuple[str, ...], float]:
    """Every series by its name and the values of its labels, in the order of the labels' names."""
    response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


async def test_the_numbers_are_those_of_stats(client: httpx.AsyncClient, api: Api, store: AsyncStore) -> None:
    for number in range(6):
        await api.send(NASTY, number)
    first, second, _ = await api.receive(NASTY, limit=3)
    done(await api.settle(first, "ack"))
    done(await api.settle(second, "reject"))
    stats = await (await store.queue(NASTY)).stats(group="default")
    told = await metrics(client)
    for name in ("available", "redo", "held", "in_progress", "dead", "lag", "consumers"):
        assert told[f"penstock_{name}", "default", NASTY] == getattr(stats, name), name
    assert told["penstock_messages_finished_total", "default", "succeeded", NASTY] == 1
    assert told["penstock_messages_finished_total", "default", "rejected", NASTY] == 1
    assert told[("penstock_queues",)] == 1
    assert told["penstock_http_requests_total", "POST", "/api/v1/queues/{queue}/messages", "201"] == 6


async def test_counters_do_not_fall_when_messages_are_redriven(
    client: httpx.AsyncClient, api: Api, store: AsyncStore
) -> None:
    for number in range(3):
        await api.send("orders", number)
    first, second, third = await api.receive("orders", limit=3)
    done(await api.settle(first, "reject"))
    done(await api.settle(second, "reject"))
    done(await api.settle(third, "nak", delay_seconds=0))
    before = await metrics(client)
    assert before["penstock_messages_finished_total", "default", "rejected", "orders"] == 2
    assert before["penstock_failed_attempts_total", "default", "orders"] == 3
    assert await (await store.queue("orders")).redrive() == 2
    # A scrape within two seconds is answered from the same look.
    async with asyncio.timeout(60):
        while (after := await metrics(client))["penstock_dead", "default", "orders"]:
            await asyncio.sleep(0.1)
    assert after["penstock_redo", "default", "orders"] == 3
    counters = {key: value for key, value in before.items() if key[0].endswith("_total") and key[-1] == "orders"}
    assert counters.items() <= after.items()


@pytest.mark.parametrize("settings", [HttpSettings(port=0, metrics_queues=3)])
async def test_unknown_paths_create_no_metric_series(client: httpx.AsyncClient, api: Api) -> None:
    for number in range(10):
        await api.send(f"queue {number}", 1)
        await client.get(f"/nowhere/{number}")
        await client.request(f"METHOD{number}", "/healthz")
    told = await metrics(client)
    assert len([key for key in told if key[0] == "penstock_available"]) == 3
    assert told[("penstock_queues_left_out",)] == 7
    requests = [key for key in told if key[0] == "penstock_http_requests_total"]
    assert len(requests) <= 4, requests


async def test_concurrent_scrapes_share_one_sample(store: AsyncStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await (await store.queue("q")).send(b"x")
    looks: list[str] = []
    stats = store.engine.stats

    def counted(queue: str) -> object:
        looks.append(queue)
        return stats(queue)

    monkeypatch.setattr(store.engine, "stats", counted)
    sampler = Sampler(store)
    first, *others = await asyncio.gather(*(sampler.sample(0) for _ in range(20)))
    assert all(one is first for one in others)
    assert looks == ["q"]
    assert await sampler.sample(60) is first
    assert await sampler.sample(0) is not first
    viewer = asyncio.create_task(sampler.sample(0))
    other = asyncio.create_task(sampler.sample(0))
    await asyncio.sleep(0)
    viewer.cancel()
    assert (await other).queues["q"].groups["default"].available == 1, "one who goes away takes nothing from the others"


async def test_health(client: httpx.AsyncClient, store: AsyncStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert done(await client.get("/healthz")) == {"status": "ok"}
    assert done(await client.get("/readyz")) == {"status": "ready"}

    def broken() -> int:
        raise OSError("disk gone")

    monkeypatch.setattr(store.engine, "seen", broken)
    response = await client.get("/readyz")
    assert (response.status_code, response.json()) == (503, {"status": "unavailable"})
    assert "disk" not in response.text
    assert (await client.get("/healthz")).status_code == 200
