"""The HTTP port, on the standard library."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import quote, urlsplit

from penstock.chaos.ports.port import Denied, Item, Lost, Taken, content_of, message_of

TIMEOUT_SECONDS = 10


class HttpPort:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(
            parts.hostname or "127.0.0.1", parts.port or 4778, timeout=TIMEOUT_SECONDS
        )

    def send(self, queue: str, items: list[Item]) -> list[str]:
        bodies = [{"payload": item.payload, **item.options} for item in items]
        if len(bodies) == 1:
            return [self._ask(f"{_path(queue)}/messages", bodies[0])["id"]]
        ids: list[str] = self._ask(f"{_path(queue)}/messages/many", {"messages": bodies})["ids"]
        return ids

    def receive(self, queue: str, group: str, consumer: str, limit: int, lease_seconds: float) -> list[Taken]:
        body = {"limit": limit, "group": group, "consumer": consumer, "lease_seconds": lease_seconds}
        found = self._ask(f"{_path(queue)}/receive", body)["deliveries"]
        return [_taken(one) for one in found]

    def settle(self, queue: str, group: str, taken: Taken, verb: str, delay: float | None) -> str | None:
        body: dict[str, Any] = {"token": taken.token, "group": group}
        if verb in ("nak", "reschedule") and delay is not None:
            body["delay_seconds"] = delay
        state: str = self._ask(f"{_path(queue)}/messages/{taken.id}/{verb}", body)["state"]
        return state

    def extend(self, queue: str, group: str, taken: Taken, seconds: float) -> None:
        body = {"token": taken.token, "group": group, "seconds": seconds}
        self._ask(f"{_path(queue)}/messages/{taken.id}/extend", body)

    def close(self) -> None:
        self._connection.close()

    def _ask(self, path: str, body: Any) -> Any:
        """A status below 500 means that the call had no effect; 5xx may follow a commit whose reply was lost."""
        try:
            self._connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = self._connection.getresponse()
            text = response.read()
        except BaseException:
            self._connection.close()
            raise
        if response.status >= 500:
            raise Lost(f"{response.status} {text.decode(errors='replace')[:300]}")
        if response.status in (404, 409, 429):
            raise Denied(text.decode(errors="replace")[:300])
        if response.status >= 300:
            raise ValueError(f"{path} answered {response.status}: {text.decode(errors='replace')[:500]}")
        return json.loads(text)


def _taken(one: dict[str, Any]) -> Taken:
    message = message_of(json.dumps(one.get("payload")), one.get("headers"))
    content = content_of(one.get("payload"), one.get("headers"), one["priority"], one.get("key"))
    return Taken(one["id"], message, one["token"], one["attempt"], content=content)


def _path(queue: str) -> str:
    return f"/api/v1/queues/{quote(queue, safe='')}"
