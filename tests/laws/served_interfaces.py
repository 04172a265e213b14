"""The interfaces of `penstock serve` for law 10: HTTP and the Redis protocol, each with a server process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from tests.laws.interfaces import Got
from tests.servers.clients.wire import ReplyError, Wire
from tests.servers.http.processes import HttpServer


class HttpInterface:
    forgets_ack_reasons = False

    def __init__(self, url: str, folder: Path) -> None:
        self.server = HttpServer(folder, url=url)
        self.url = url
        self.server.start()
        self.client = httpx.Client(base_url=f"{self.server.http_url}/api/v1", timeout=60)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        response = self.client.request(method, path, json=body)
        if response.status_code == 409 and response.json()["error"] == "LeaseLost":
            return None
        assert response.is_success, response.text
        return response.json()

    def declare(self, queue: str, **policy: Any) -> None:
        self._ask("PATCH", f"/queues/{queue}/policy", policy)

    def send(self, queue: str, payload: Any, **options: Any) -> str:
        sent: str = self._ask("POST", f"/queues/{queue}/messages", {"payload": payload, **options})["id"]
        return sent

    def receive(self, queue: str, limit: int, group: str) -> list[Got]:
        body = {"limit": limit, "group": group, "consumer": "c1"}
        got = self._ask("POST", f"/queues/{queue}/receive", body)["deliveries"]
        return [Got(one["payload"], one["attempt"], one) for one in got]

    def settle(self, queue: str, verb: str, got: Got, **options: Any) -> str:
        handle = got.handle
        body = {"token": handle["token"], "group": handle["group"], **options}
        return "lost" if self._ask("POST", f"/queues/{queue}/messages/{handle['id']}/{verb}", body) is None else "ok"

    def batch(self, queue: str, name: str, verb: str, payload: Any = None) -> None:
        path = f"/queues/{queue}/batches/{name}"
        if verb == "send":
            self.send(queue, payload, batch=name)
        elif verb.startswith("set_"):
            self._ask("PUT", path, {verb.removeprefix("set_"): {"payload": payload}})
        else:
            self._ask("POST", f"{path}/{verb}")

    def redrive(self, queue: str) -> int:
        count: int = self._ask("POST", f"/queues/{queue}/redrive", {})["count"]
        return count

    def sweep(self) -> None:
        self._ask("POST", "/sweep")

    def close(self) -> None:
        self.client.close()
        self.server.stop()


class RedisInterface:
    """QACK takes no reason, and returns 0 for a repeated ack."""

    forgets_ack_reasons = True

    def __init__(self, url: str, folder: Path) -> None:
        self.server = HttpServer(folder, url=url)
        self.url = url
        self.server.start()
        self.wire = Wire(self.server.port)
        self._acked: set[str] = set()

    def declare(self, queue: str, **policy: Any) -> None:
        self.wire.call(
            "QPOLICY", queue, *(word for name, value in policy.items() for word in (name, json.dumps(value)))
        )

    def send(self, queue: str, payload: Any, **options: Any) -> str:
        words: list[Any] = ["QSEND", queue, _json(payload), "TYPE", "application/json"]
        for name, value in options.items():
            words += [WORDS.get(name, name.upper()), json.dumps(value) if name == "headers" else value]
        sent: bytes = self.wire.call(*words)
        return sent.decode()

    def receive(self, queue: str, limit: int, group: str) -> list[Got]:
        found = self.wire.call("QRECEIVE", queue, "GROUP", group, "CONSUMER", "c1", "LIMIT", limit)
        maps = [dict(zip(one[::2], one[1::2], strict=True)) for one in found]
        return [Got(json.loads(one[b"payload"]), one[b"attempt"], (group, one[b"id"].decode())) for one in maps]

    def settle(self, queue: str, verb: str, got: Got, **options: Any) -> str:
        group, id = got.handle
        if verb == "ack":
            done = self.wire.call("QACK", queue, group, id) == 1 or id in self._acked
            self._acked.add(id)
            return "ok" if done else "lost"
        words = [word for name, value in options.items() for word in (WORDS.get(name, name.upper()), value)]
        try:
            self.wire.call(f"Q{verb.upper()}", queue, group, id, *words)
        except ReplyError as error:
            if not str(error).startswith("LEASELOST"):
                raise
            return "lost"
        return "ok"

    def batch(self, queue: str, name: str, verb: str, payload: Any = None) -> None:
        if verb == "send":
            self.send(queue, payload, batch=name)
        elif verb.startswith("set_"):
            kind = verb.removeprefix("set_").upper()
            self.wire.call("QBATCH", kind, queue, name, _json(payload), "TYPE", "application/json")
        else:
            self.wire.call("QBATCH", verb.upper(), queue, name)

    def redrive(self, queue: str) -> int:
        count: int = self.wire.call("QREDRIVE", queue)
        return count

    def sweep(self) -> None:
        """The server sweeps by itself."""

    def close(self) -> None:
        self.wire.socket.close()
        self.server.stop()


WORDS = {"delay_seconds": "DELAY", "created_by": "BY"}


def _json(payload: Any) -> str:
    return json.dumps(payload, separators=(",", ":"))
