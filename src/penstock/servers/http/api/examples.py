"""Examples for the OpenAPI document, made from its schemas: fields of the same name have the same value."""

from __future__ import annotations

from typing import Any

NOW = "2026-01-31T12:00:00Z"
ID = "01a1e17a-5c4b-79be-899e-000000000002"
# By name of a field or parameter; used if the schema allows the value.
VALUES: dict[str, Any] = {
    "action": "ack",
    "address": "invoice 7",
    "advice": "penstock redrive orders",
    "attempt": 1,
    "attempts": 8,
    "batch": "nightly",
    "because": "it failed 8 times: the gateway does not answer",
    "before": "1794775730634904:7:default",
    "by": "worker-1",
    "catch_up": "skip",
    "consumer": "worker-1",
    "content_type": "application/json",
    "created_by": "system",
    "cron": "*/5 * * * *",
    "delay_seconds": 60,
    "delivery": "at_least_once",
    "detail": "line 2: exactly one of payload and payload_base64 must be given",
    "edge": "start",
    "error": "InvalidInput",
    "event": "ack",
    "finding": "3 messages of orders failed with the same error",
    "group": "default",
    "headers": {"trace": "a1"},
    "heartbeat_seconds": 5,
    "id": ID,
    "job": "archive",
    "key": "customer 3",
    "lease_seconds": 60,
    "limit": 10,
    "max_payload_bytes": 1048576,
    "max_retries": 7,
    "name": "orders",
    "ok": True,
    "outcome": "failed",
    "path": "lake",
    "payload": {"order": 7},
    "position": 2,
    "primary_group": "default",
    "priority": 0,
    "queue": "orders",
    "reason": "the gateway does not answer",
    "right": "look",
    "role": "admin",
    "schedule": "every five minutes",
    "seconds": 60,
    "state": "succeeded",
    "status": 400,
    "timezone": "Europe/Berlin",
    "title": "Bad Request",
    "token": 1794775730634904,
    "ttl_seconds": 3600,
    "type": "about:blank",
    "wait_seconds": 0,
}
# Optional request fields that examples show.
SHOWN = frozenset(
    {
        "consumer", "end", "headers", "lease_seconds", "limit", "max_retries", "priority", "reason", "timezone",
        "wait_seconds",
    }
)  # fmt: skip
# Response fields that are usually null.
OFTEN_NULL = frozenset({"address", "batch", "deadline_at", "detail", "error", "expires_at", "key", "next"})
# Other values within these schemas.
OF_COMPONENTS: dict[str, dict[str, Any]] = {
    "AuditEntry": {"event": "ack", "state": "succeeded", "reason": None},
    "BatchInfo": {"name": "nightly", "state": "running", "total": 100, "remaining": 40, "finished": 60},
    "ConsumerInfo": {"id": 1, "name": "worker-1", "index": 0, "living": 1},
    "Explanation": {"state": "failed"},
    "LineError": {"line": 2},
    "Me": {"name": "ada"},
    "ScheduleDocument": {"name": "every five minutes"},
    "Removed": {"name": "every five minutes"},
    "StreamReport": {"lines": 3, "sent": 2, "failed": 1},
}


class Examples:
    def __init__(self, components: dict[str, Any]) -> None:
        self._components = components

    def of(self, schema: dict[str, Any], name: str = "", is_request: bool = False) -> Any:
        """A value that the schema allows."""
        if "$ref" in schema:
            component = schema["$ref"].rpartition("/")[2]
            return self._of_component(component, self._components[component], name, is_request)
        if "enum" in schema:
            return VALUES[name] if VALUES.get(name) in schema["enum"] else schema["enum"][0]
        kind = schema.get("type")
        if kind == "array":
            return [self.of(schema["items"], name.removesuffix("s"), is_request)]
        if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
            return VALUES["headers"] if name == "headers" else {_key(name): self.of(schema["additionalProperties"])}
        if kind is None and "anyOf" in schema:
            possible = [one for one in schema["anyOf"] if one.get("type") != "null"]
            if len(possible) < len(schema["anyOf"]) and name in OFTEN_NULL and not is_request:
                return None
            return self.of(possible[0], name, is_request)
        return _scalar(schema, kind, name)

    def _of_component(self, component: str, schema: dict[str, Any], name: str, is_request: bool) -> Any:
        if "properties" not in schema:
            return self.of(schema, name, is_request)
        known = OF_COMPONENTS.get(component, {})
        return {
            field: known[field] if field in known else self.of(one, field, is_request)
            for field, one in schema["properties"].items()
            if _is_shown(field, one, schema, is_request)
        }


def _is_shown(field: str, one: dict[str, Any], schema: dict[str, Any], is_request: bool) -> bool:
    if field in schema.get("required", ()):
        return True
    if "oneOf" in schema and any(field in choice["required"] for choice in schema["oneOf"]):
        return bool(field == schema["oneOf"][0]["required"][0])
    if is_request:
        return field in SHOWN
    return "default" in one or field == "payload"


def _scalar(schema: dict[str, Any], kind: str | None, name: str) -> Any:
    if kind is None or (name in VALUES and _is_a(VALUES[name], kind)):
        return VALUES.get(name, VALUES["payload"])
    if "default" in schema:
        return schema["default"]
    if kind == "string":
        return NOW if name == "time" or name.endswith("at") else name or "text"
    return {"boolean": False, "object": {}, "null": None}.get(kind, 1)


def _is_a(value: Any, kind: str) -> bool:
    kinds: dict[str, tuple[type, ...]] = {
        "string": (str,),
        "integer": (int,),
        "number": (int, float),
        "object": (dict,),
        "boolean": (bool,),
    }
    return isinstance(value, kinds.get(kind, ()))


def _key(name: str) -> str:
    return {"groups": "default", "outcomes": "succeeded"}.get(name, "name")
