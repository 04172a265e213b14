"""The public names of section 6 of the design, and nothing hidden or forgotten beside them."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest

import penstock

# The parameters of each call in the design. More are allowed, other names are not.
CALLS: dict[str, list[str]] = {
    "connect": ["url"],
    "connect_async": ["url"],
    "Store.queue": ["name", "policy"],
    "Store.queues": [],
    "Store.consumers": [],
    "Store.schedule": ["name", "cron", "queue", "payload", "timezone", "catch_up"],
    "Store.schedules": [],
    "Store.pause_schedule": ["name"],
    "Store.resume_schedule": ["name"],
    "Store.unschedule": ["name"],
    "Store.sweep": [],
    "Store.migrate": [],
    "Store.close": [],
    "Queue.send": [
        "payload",
        "priority",
        "delay_seconds",
        "ttl_seconds",
        "deadline_at",
        "address",
        "key",
        "headers",
        "id",
        "created_by",
        "transaction",
    ],
    "Queue.send_many": ["items"],
    "Queue.receive": ["limit", "group", "consumer", "lease_seconds", "wait_seconds"],
    "Queue.settle": ["settlements"],
    "Queue.ack_many": ["deliveries"],
    "Queue.stats": ["group"],
    "Queue.peek": ["limit"],
    "Queue.audit": ["id"],
    "Queue.explain": ["id"],
    "Queue.archive": [],
    "Queue.flush": [],
    "Queue.pause": [],
    "Queue.resume": [],
    "Queue.dead_letters": [],
    "Queue.redrive": [],
    "Queue.wait": ["address", "timeout_seconds"],
    "Queue.batch": ["name"],
    "Queue.seek": ["group"],
    "Queue.producer": ["batch_size", "linger_seconds"],
    "Queue.register": [],
    "Delivery.ack": ["reason"],
    "Delivery.nak": ["reason", "delay_seconds"],
    "Delivery.reject": ["reason"],
    "Delivery.reschedule": ["delay_seconds", "reason"],
    "Delivery.extend": ["seconds"],
    "Delivery.json": [],
    "Batch.send": ["payload"],
    "Batch.set_end": ["payload"],
    "Batch.set_abort": ["payload"],
    "Batch.start": [],
    "Batch.cancel": [],
    "Producer.send": ["payload"],
    "Consumer.heartbeat": [],
    "Consumer.deregister": [],
}
FIELDS: dict[str, list[str]] = {
    "Delivery": ["id", "payload", "attempt", "lease_ends_at", "token"],
    "Batch": ["state", "remaining", "finished"],
    "Message": ["id", "queue", "payload", "content_type", "headers", "priority", "available_at", "expires_at"],
    "GroupStats": [
        "total",
        "in_progress",
        "redo",
        "done",
        "available",
        "held",
        "dead",
        "consumers",
        "oldest_age_seconds",
        "lag",
    ],
    "DeadLetter": ["id", "queue", "group", "payload", "outcome", "reason", "attempts", "died_at"],
    "AuditEntry": ["at", "event", "by", "group", "reason", "attempt"],
    "Outgoing": [
        "payload",
        "priority",
        "delay_seconds",
        "ttl_seconds",
        "deadline_at",
        "address",
        "key",
        "headers",
        "id",
    ],
    "Ack": ["delivery", "reason"],
    "Nak": ["delivery", "reason", "delay_seconds"],
    "Reject": ["delivery", "reason"],
    "Reschedule": ["delivery", "delay_seconds", "reason"],
}
POLICY = {
    "lease_seconds": 30,
    "max_retries": 7,
    "backoff_base_seconds": 10,
    "backoff_factor": 2,
    "backoff_jitter_seconds": 5,
    "backoff_max_seconds": 3600,
    "delay_seconds": 0,
    "ttl_seconds": None,
    "delivery": "at_least_once",
    "shards": 1,
    "ordered": False,
    "primary_group": "default",
    "history_seconds": 24 * 3600,
    "group_idle_seconds": 7 * 24 * 3600,
    "dead_letter_seconds": 91 * 24 * 3600,
    "max_payload_bytes": 16 * 1024 * 1024,
    "paused": False,
}
OUTCOMES = ["succeeded", "rejected", "failed", "lease_expired", "expired", "cancelled"]


def test_the_package_lists_exactly_its_public_names() -> None:
    visible = {
        name
        for name, value in vars(penstock).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert set(penstock.__all__) == visible
    assert penstock.__all__ == sorted(penstock.__all__)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_takes_what_the_design_says(call: str) -> None:
    function = _named(call)
    parameters = list(inspect.signature(function).parameters)
    assert set(CALLS[call]) <= set(parameters), f"{call}{inspect.signature(function)}"


@pytest.mark.parametrize("name", FIELDS)
def test_a_value_has_the_fields_that_the_design_says(name: str) -> None:
    value = getattr(penstock, name)
    there = {field for field in dir(value) if not field.startswith("_")}
    there |= set(getattr(value, "__struct_fields__", ()))
    assert set(FIELDS[name]) <= there


def test_results_are_frozen() -> None:
    for name in ("GroupStats", "DeadLetter", "AuditEntry", "Message", "Settled", "Policy", "SweepReport", "Schedule"):
        assert getattr(penstock, name).__struct_config__.frozen, name


def test_the_policy_has_the_defaults_of_the_design() -> None:
    policy = penstock.Policy()
    assert {name: getattr(policy, name) for name in policy.__struct_fields__} == POLICY


def test_the_outcomes_are_those_of_the_design() -> None:
    assert [state for state in penstock.State if state not in ("held", "ready", "leased")] == OUTCOMES


def test_every_error_is_in_the_one_tree_and_public() -> None:
    from penstock.domain import errors

    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    assert len(classes) > 20
    for one in classes:
        assert issubclass(one, penstock.PenstockError)
        assert getattr(penstock, one.__name__) is one
        assert one.__doc__


def test_every_public_name_says_what_it_is() -> None:
    silent = [name for name in penstock.__all__ if inspect.isclass(getattr(penstock, name)) and not _says(name)]
    assert not silent


def _says(name: str) -> bool:
    value = getattr(penstock, name)
    module = inspect.getmodule(value)
    return bool(value.__doc__ or (module and module.__doc__))


def _named(call: str) -> Any:
    value: Any = penstock
    for part in call.split("."):
        value = getattr(value, part)
    return value


def test_every_type_of_a_public_signature_is_public() -> None:
    """Types that users need for annotations are exported."""
    hidden = {
        f"{kind.__module__}.{kind.__qualname__} of {where}"
        for where, function in _public_functions()
        for kind in _types(function)
        if kind.__module__.startswith("penstock.") and kind.__name__ not in penstock.__all__
    }
    assert not hidden


def _public_functions() -> Iterator[tuple[str, Any]]:
    for name in penstock.__all__:
        value = getattr(penstock, name)
        if inspect.isfunction(value):
            yield name, value
        for part, member in inspect.getmembers(value) if inspect.isclass(value) else ():
            function = member.fget if isinstance(member, property) else member
            if inspect.isfunction(function) and (not part.startswith("_") or part in ("__enter__", "__aenter__")):
                yield f"{name}.{part}", function


def _types(function: Any) -> Iterator[type]:
    known = {**vars(penstock), "ConnectionPool": object, "Engine": object}
    waiting = list(typing.get_type_hints(function, localns=known).values())
    while waiting:
        hint = waiting.pop()
        waiting += typing.get_args(hint)
        if inspect.isclass(hint):
            yield hint
