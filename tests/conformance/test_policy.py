"""Policies: declared fields are set, the others keep their value, invalid ones are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock import InvalidPolicy, Policy, Queue, Store
from tests.conformance.assertions import payloads, take, take_all
from tests.conformance.clients import Opener
from tests.conformance.clock import Clock

OTHER_VALUES: dict[str, Any] = {
    "lease_seconds": 31.5,
    "max_retries": 5,
    "backoff_base_seconds": 2.5,
    "backoff_factor": 1.5,
    "backoff_jitter_seconds": 0,
    "backoff_max_seconds": 77,
    "delay_seconds": 3,
    "ttl_seconds": 611,
    "delivery": "at_most_once",
    "shards": 4,
    "ordered": True,
    "primary_group": "billing",
    "history_seconds": 501,
    "group_idle_seconds": 502,
    "dead_letter_seconds": 503,
    "max_payload_bytes": 1_001,
    "paused": True,
}


def test_a_queue_without_a_declared_policy_has_the_default_one(store: Store) -> None:
    store.queue("plain").send(1)
    assert store.queue("plain").policy() == Policy()
    assert store.queue("never used").policy() == Policy()


def test_every_field_of_the_policy_is_tried_here() -> None:
    assert set(OTHER_VALUES) == set(Policy.__struct_fields__)


@pytest.mark.parametrize("field", OTHER_VALUES)
def test_a_field_is_set_and_the_others_keep_their_value(store: Store, field: str) -> None:
    queue = store.queue("orders", lease_seconds=29, max_retries=4)
    before = queue.policy()
    store.queue("orders", **{field: OTHER_VALUES[field]})
    assert queue.policy() == msgspec.structs.replace(before, **{field: OTHER_VALUES[field]})


def test_all_fields_are_set_at_once_and_read_back_from_another_opening(store: Store, open_store: Opener) -> None:
    store.queue("orders", **OTHER_VALUES)
    assert open_store().queue("orders").policy() == Policy(**OTHER_VALUES)


@pytest.mark.parametrize("field", ["max_retries", "ttl_seconds", "primary_group"])
def test_none_is_a_value_for_fields_that_may_be_without(store: Store, field: str) -> None:
    store.queue("orders", **{field: OTHER_VALUES[field]})
    without: dict[str, Any] = {field: None}
    queue = store.queue("orders", **without)
    assert getattr(queue.policy(), field) is None


def test_declaring_without_fields_changes_nothing(queue: Queue, store: Store) -> None:
    before = queue.policy()
    store.queue("orders")
    assert queue.policy() == before


def test_a_declared_queue_is_listed_with_its_policy_and_groups(store: Store, clock: Clock) -> None:
    store.queue("orders", lease_seconds=29)
    clock.advance(seconds=5)
    store.queue("another").send(1)
    another, orders = store.queues()
    assert (another.name, another.policy, another.groups) == ("another", Policy(), ("default",))
    assert (orders.name, orders.policy, orders.groups) == ("orders", Policy(lease_seconds=29), ())
    assert another.created_at == clock.now
    assert (clock.now - orders.created_at).total_seconds() == 5


def test_a_change_applies_to_an_opening_that_knew_the_old_policy(
    queue: Queue, open_store: Opener, clock: Clock
) -> None:
    queue.send(1)
    queue.policy()
    open_store().queue("orders", lease_seconds=5)
    assert (take(queue).lease_ends_at - clock.now).total_seconds() == 5


def test_a_smaller_limit_for_payloads_applies_to_the_next_send(queue: Queue, store: Store) -> None:
    queue.send(b"x" * 20)
    store.queue("orders", max_payload_bytes=19)
    with pytest.raises(Exception, match="19"):
        queue.send(b"x" * 20)
    assert take(queue).payload == b"x" * 20


def test_messages_are_still_received_when_the_number_of_shards_changes(queue: Queue, store: Store) -> None:
    queue.send_many([1, 2, 3])
    store.queue("orders", shards=4)
    queue.send_many([4, 5, 6])
    store.queue("orders", shards=2)
    queue.send_many([7, 8])
    assert sorted(payloads(take_all(queue))) == [1, 2, 3, 4, 5, 6, 7, 8]


BAD_VALUES: list[tuple[str, Any]] = [
    *[("lease_seconds", value) for value in (0, -1, "30", None, float("nan"), float("inf"), True, 10**12)],
    *[("max_retries", value) for value in (-1, 1.5, "7", True, 10**7)],
    *[("backoff_base_seconds", value) for value in (-1, None, "10", float("nan"))],
    *[("backoff_factor", value) for value in (0.5, 101, None, "2", True, float("nan"))],
    *[("backoff_jitter_seconds", value) for value in (-1, None)],
    *[("backoff_max_seconds", value) for value in (-1, None)],
    *[("delay_seconds", value) for value in (-1, None, "soon")],
    *[("ttl_seconds", value) for value in (0, -1, "never", False)],
    *[("delivery", value) for value in ("exactly_once", None, 1, ["at_least_once"])],
    *[("shards", value) for value in (0, -1, 1_025, 1.5, None, True)],
    *[("ordered", value) for value in (1, "yes", None)],
    *[("primary_group", value) for value in ("", "a\nb", 7)],
    *[("history_seconds", value) for value in (-1, None)],
    *[("group_idle_seconds", value) for value in (0, None)],
    *[("dead_letter_seconds", value) for value in (-1, None)],
    *[("max_payload_bytes", value) for value in (0, -1, 1.5, None, 1 << 40)],
    *[("paused", value) for value in (1, "no", None)],
]


@pytest.mark.parametrize(("field", "value"), BAD_VALUES, ids=[f"{field}={value!r}" for field, value in BAD_VALUES])
def test_a_bad_value_is_refused_by_field_and_nothing_is_set(store: Store, field: str, value: Any) -> None:
    with pytest.raises(InvalidPolicy, match=field):
        store.queue("orders", **{"lease_seconds": 29, field: value})
    assert store.queues() == []


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("lease", "lease_seconds"),
        ("max_retrys", "max_retries"),
        ("shard", "shards"),
        ("priority_group", "primary_group"),
    ],
)
def test_an_unknown_field_is_refused_and_the_nearest_is_suggested(store: Store, given: str, meant: str) -> None:
    fields: dict[str, Any] = {given: 5}
    with pytest.raises(InvalidPolicy, match=f"{given}.*did you mean '{meant}'"):
        store.queue("orders", **fields)
    assert store.queues() == []


def test_an_unknown_field_that_is_like_no_other_gets_no_suggestion(store: Store) -> None:
    with pytest.raises(InvalidPolicy, match="zzz") as caught:
        store.queue("orders", zzz=5)  # type: ignore[call-arg]  # what is refused here
    assert "did you mean" not in str(caught.value)
