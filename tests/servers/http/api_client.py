"""Asking the API as a program does: paths from segments, bodies and answers as JSON."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import httpx

from penstock import AsyncStore


class Api:
    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def ask(self, method: str, *segments: str, body: Any = None, **options: Any) -> httpx.Response:
        path = "/api/v1/" + "/".join(quote(one, safe="") for one in segments)
        if body is not None:
            options["json"] = body
        request = self.client.build_request(method, path, **options)
        if ".." in segments:
            # Most clients take such segments out of a path; the server does not.
            request.extensions["target"] = path.encode()
        return await self.client.send(request)

    async def get(self, *segments: str, **query: Any) -> Any:
        return done(await self.ask("GET", *segments, params=query))

    async def post(self, *segments: str, **body: Any) -> Any:
        return done(await self.ask("POST", *segments, body=body))

    async def send(self, queue: str, payload: Any, **options: Any) -> str:
        message_id: str = (await self.post("queues", queue, "messages", payload=payload, **options))["id"]
        return message_id

    async def receive(self, queue: str, **options: Any) -> list[dict[str, Any]]:
        deliveries: list[dict[str, Any]] = (await self.post("queues", queue, "receive", **options))["deliveries"]
        return deliveries

    async def settle(self, delivery: dict[str, Any], action: str, **options: Any) -> httpx.Response:
        lease = {name: delivery[name] for name in ("token", "group", "position")}
        return await self.ask(
            "POST", "queues", delivery["queue"], "messages", delivery["id"], action, body={**lease, **options}
        )


def done(response: httpx.Response) -> Any:
    assert response.is_success, f"{response.status_code}: {response.text}"
    return response.json()


def problem(response: httpx.Response, status: int) -> str:
    """The sentence of an error that was expected."""
    assert response.status_code == status, f"{response.status_code}: {response.text}"
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert document["status"] == status
    assert document["error"]
    detail: str = document["detail"]
    return detail


async def waiting_for(store: AsyncStore, count: int) -> None:
    """Until so many receives wait."""
    async with asyncio.timeout(60):
        while sum(len(one.waiting) for one in store.executor._watcher._awaited.values()) != count:
            await asyncio.sleep(0.005)
