"""The interfaces of `penstock serve` for law 10: HTTP and the Redis protocol, each of a server of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

import httpx
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.laws.interfaces import COUNTS, FIELDS, Got, Refusal, Settling, compact_json
from tests.ports import LOOPBACK

TIMES = ("created_at", "expires_at", "deadline_at", "lease_ends_at")


class RunningServer(Protocol):
    """A server with a port of the Redis protocol and one of HTTP, in this process or in another one."""

    port: int
    http_url: str

    def stop(self) -> object: ...


class HttpInterface:
    forgets_ack_reasons = False

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.client = httpx.Client(base_url=f"{server.http_url}/api/v1", timeout=60)

    def _ask(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        response = self.client.request(method, path, json=body, params=query)
        if not response.is_success:
            assert response.status_code < 500, response.text
            raise Refusal(response.json()["error"])
        return response.json()

    def declare(self, queue: str, **policy: Any) -> None:
        self._ask("PATCH", f"/queues/{queue}/policy", policy)

    def send(self, queue: str, payload: Any, **options: Any) -> str:
        sent: str = self._ask("POST", f"/queues/{queue}/messages", _body(payload, options))["id"]
        return sent

    def send_many(self, queue: str, items: Sequence[dict[str, Any]]) -> list[str]:
        bodies = [_body(item["payload"], item) for item in items]
        ids: list[str] = self._ask("POST", f"/queues/{queue}/messages/many", {"messages": bodies})["ids"]
        return ids

    def receive(self, queue: str, limit: int, group: str | None, **options: Any) -> list[Got]:
        body = {"limit": limit, "group": group, "consumer": "c1", **options}
        got = self._ask("POST", f"/queues/{queue}/receive", body)["deliveries"]
        return [Got(one["payload"], one["attempt"], one, _shown(one)) for one in got]

    def settle(self, queue: str, verb: str, got: Got, **options: Any) -> str:
        body = {"token": got.handle["token"], "group": got.handle["group"], **options}
        return _outcome(lambda: self._ask("POST", f"/queues/{queue}/messages/{got.handle['id']}/{verb}", body))

    def settle_many(self, queue: str, items: Sequence[Settling]) -> list[str]:
        names = ("id", "token", "group")
        bodies = [{"action": verb, **{name: got.handle[name] for name in names}, **more} for verb, got, more in items]
        results = self._ask("POST", f"/queues/{queue}/settle", {"settlements": bodies})["results"]
        return [one["state"] if one["ok"] else one["error"] for one in results]

    def extend(self, queue: str, got: Got, seconds: float) -> datetime:
        body = {"token": got.handle["token"], "group": got.handle["group"], "seconds": seconds}
        extended = self._ask("POST", f"/queues/{queue}/messages/{got.handle['id']}/extend", body)
        return datetime.fromisoformat(extended["lease_ends_at"])

    def batch(self, queue: str, name: str, verb: str, payload: Any = None) -> None:
        path = f"/queues/{queue}/batches/{name}"
        if verb == "send":
            self.send(queue, payload, batch=name)
        elif verb.startswith("set_"):
            self._ask("PUT", path, {verb.removeprefix("set_"): {"payload": payload}})
        elif verb == "open":
            self._ask("PUT", path, {})
        else:
            self._ask("POST", f"{path}/{verb}")

    def redrive(self, queue: str) -> int:
        count: int = self._ask("POST", f"/queues/{queue}/redrive", {})["count"]
        return count

    def purge(self, queue: str) -> int:
        count: int = self._ask("POST", f"/queues/{queue}/purge", {})["count"]
        return count

    def seek(self, queue: str, group: str, target: str | datetime) -> None:
        body = {"edge": target} if isinstance(target, str) else {"time": target.isoformat()}
        self._ask("POST", f"/queues/{queue}/groups/{group}/seek", body)

    def pause(self, queue: str) -> None:
        self._ask("POST", f"/queues/{queue}/pause")

    def resume(self, queue: str) -> None:
        self._ask("POST", f"/queues/{queue}/resume")

    def flush(self, queue: str) -> None:
        self._ask("POST", f"/queues/{queue}/flush")

    def stats(self, queue: str) -> dict[str, Any] | None:
        groups = self._ask("GET", f"/queues/{queue}/stats")["groups"]
        return {group: {name: stats[name] for name in COUNTS} for group, stats in groups.items()}

    def peek(self, queue: str, group: str) -> list[Any]:
        found = self._ask("GET", f"/queues/{queue}/peek", limit=1000, group=group)["messages"]
        return [one["payload"] for one in found]

    def letters(self, queue: str, group: str) -> list[Any]:
        found = self._ask("GET", f"/queues/{queue}/dead_letters", limit=1000, group=group)["dead_letters"]
        return [
            (one["payload"], one["outcome"], one["reason"], one["attempts"], datetime.fromisoformat(one["died_at"]))
            for one in found
        ]

    def trail(self, queue: str, id: str) -> list[Any]:
        return _trail(self._ask("GET", f"/queues/{queue}/messages/{id}/audit")["entries"])

    def sweep(self) -> None:
        self._ask("POST", "/sweep")

    def close(self) -> None:
        self.client.close()
        self.server.stop()


class RedisInterface:
    """Through redis-py. Without `by_token` it settles by message id, as the connection that received it: QACK takes no
    reason, and returns 0 for a repeated ack."""

    forgets_ack_reasons = True

    def __init__(self, server: RunningServer, by_token: bool = False) -> None:
        self.server = server
        self.by_token = by_token
        # A command that was lost must not be sent again behind the test's back.
        self.client = redis.Redis(
            host=LOOPBACK, port=server.port, protocol=3, decode_responses=True, socket_timeout=60,
            single_connection_client=True, retry=Retry(NoBackoff(), 0),
        )  # fmt: skip
        self._acked: set[str] = set()

    def _ask(self, *words: Any) -> Any:
        try:
            return self.client.execute_command(*words)  # type: ignore[no-untyped-call]
        except redis.ResponseError as error:
            raise _refusal(error) from error

    def declare(self, queue: str, **policy: Any) -> None:
        self._ask("QPOLICY", queue, *(word for name, value in policy.items() for word in (name, json.dumps(value))))

    def send(self, queue: str, payload: Any, **options: Any) -> str:
        sent: str = self._ask(*_send_words(queue, payload, options))
        return sent

    def send_many(self, queue: str, items: Sequence[dict[str, Any]]) -> list[str]:
        """There is no command for several: they are sent in one transaction."""
        with self.client.pipeline(transaction=True) as pipeline:
            for item in items:
                pipeline.execute_command(*_send_words(queue, item["payload"], item))  # type: ignore[no-untyped-call]
            ids: list[str] = pipeline.execute()
        return ids

    def receive(self, queue: str, limit: int, group: str | None, **options: Any) -> list[Got]:
        wish = {"limit": limit, "consumer": "c1", **({} if group is None else {"group": group}), **options}
        found = self._ask("QRECEIVE", queue, *_words(wish))
        return [
            Got(json.loads(one["payload"]), one["attempt"], (group or "default", one["id"], one["token"]), _shown(one))
            for one in found
        ]

    def settle(self, queue: str, verb: str, got: Got, **options: Any) -> str:
        return _outcome(lambda: self._settle(queue, Settling(verb, got, options)))

    def settle_many(self, queue: str, items: Sequence[Settling]) -> list[str]:
        """There is no command for several: they are settled one after the other."""
        return [_state(lambda one=one: self._settle(queue, one)) for one in items]  # type: ignore[misc]

    def _settle(self, queue: str, item: Settling) -> str:
        group, id, token = item.got.handle
        words = [f"Q{item.verb.upper()}", queue, group, id, *(["TOKEN", token] if self.by_token else [])]
        if item.verb != "ack":
            return str(self._ask(*words, *_words(item.options)))
        done = self._ask(*words) == 1 or id in self._acked
        if not self.by_token:
            self._acked.add(id)
        if not done:
            raise Refusal("LeaseLost")
        return "succeeded"

    def extend(self, queue: str, got: Got, seconds: float) -> datetime:
        group, id, token = got.handle
        return datetime.fromisoformat(self._ask("QEXTEND", queue, group, id, seconds, "TOKEN", token))

    def batch(self, queue: str, name: str, verb: str, payload: Any = None) -> None:
        if verb == "send":
            self.send(queue, payload, batch=name)
        elif verb.startswith("set_"):
            kind = verb.removeprefix("set_").upper()
            self._ask("QBATCH", kind, queue, name, compact_json(payload), "TYPE", "application/json")
        else:
            self._ask("QBATCH", verb.upper(), queue, name)

    def redrive(self, queue: str) -> int:
        count: int = self._ask("QREDRIVE", queue)
        return count

    def purge(self, queue: str) -> int:
        count: int = self._ask("QPURGE", queue)
        return count

    def seek(self, queue: str, group: str, target: str | datetime) -> None:
        self._ask("QSEEK", queue, group, target if isinstance(target, str) else target.isoformat())

    def pause(self, queue: str) -> None:
        self._ask("QPAUSE", queue)

    def resume(self, queue: str) -> None:
        self._ask("QRESUME", queue)

    def flush(self, queue: str) -> None:
        self._ask("QFLUSH", queue)

    def stats(self, queue: str) -> dict[str, Any] | None:
        """QSTATUS has the six counts of its own conventions."""
        return None

    def peek(self, queue: str, group: str) -> list[Any]:
        return [json.loads(one["payload"]) for one in self._ask("QPEEK", queue, "GROUP", group, "LIMIT", 1000)]

    def letters(self, queue: str, group: str) -> list[Any]:
        found = self._ask("QDEAD", queue, "GROUP", group, "LIMIT", 1000)
        return [
            (
                json.loads(one["payload"]),
                one["outcome"],
                one["reason"],
                one["attempts"],
                datetime.fromisoformat(one["died_at"]),
            )
            for one in found
        ]

    def trail(self, queue: str, id: str) -> list[Any]:
        return _trail(self._ask("QAUDIT", queue, id))

    def sweep(self) -> None:
        """The server sweeps by itself."""

    def close(self) -> None:
        self.client.close()
        self.server.stop()


WORDS = {
    "delay_seconds": "DELAY",
    "ttl_seconds": "TTL",
    "deadline_at": "DEADLINE",
    "lease_seconds": "LEASE",
    "created_by": "BY",
    "content_type": "TYPE",
}
# Codes of the Redis protocol; ERR stands for all other errors.
CODES = {
    "LEASELOST": "LeaseLost",
    "OUTOFORDER": "OutOfOrder",
    "DUPLICATEADDRESS": "DuplicateAddress",
    "BATCHCLOSED": "BatchClosed",
    "GROUPMISUSED": "GroupMisused",
    "CONSUMERREMOVED": "ConsumerRemoved",
    "NOTFOUND": "NotFound",
}


def _refusal(error: redis.ResponseError) -> Refusal:
    code = str(error).partition(" ")[0]
    assert not code.startswith(("TRYAGAIN", "MISCONF", "READONLY")), error
    return Refusal(CODES.get(code, "ERR"))


def _send_words(queue: str, payload: Any, options: dict[str, Any]) -> list[Any]:
    named = {name: value for name, value in options.items() if name != "payload"}
    return ["QSEND", queue, compact_json(payload), "TYPE", "application/json", *_words(named)]


def _words(options: dict[str, Any]) -> list[Any]:
    words: list[Any] = []
    for name, value in options.items():
        if value is None:
            continue
        shown = value.timestamp() if isinstance(value, datetime) else json.dumps(value) if name == "headers" else value
        words += [WORDS.get(name, name.upper()), shown]
    return words


def _body(payload: Any, options: dict[str, Any]) -> dict[str, Any]:
    shown = {name: one.isoformat() if isinstance(one, datetime) else one for name, one in options.items()}
    return {**shown, "payload": payload}


def _shown(one: dict[str, Any]) -> dict[str, Any]:
    """Fields of a delivery; HTTP has no content type where the payload is JSON."""
    fields = {name: one[name] for name in FIELDS if name != "content_type"}
    times = {name: datetime.fromisoformat(fields[name]) for name in TIMES if fields[name] is not None}
    return {**fields, **times, "content_type": one.get("content_type") or "application/json"}


def _trail(entries: Sequence[dict[str, Any]]) -> list[Any]:
    return [
        (
            datetime.fromisoformat(one["at"]),
            *(one[name] for name in ("event", "state", "by", "group", "reason")),
            one["attempt"] or None,
        )
        for one in entries
    ]


def _outcome(call: Callable[[], object]) -> str:
    try:
        call()
    except Refusal as refusal:
        return str(refusal)
    return "ok"


def _state(call: Callable[[], str]) -> str:
    try:
        return call()
    except Refusal as refusal:
        return str(refusal)
