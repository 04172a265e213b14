"""The message of a tick names its schedule and tick."""

from __future__ import annotations

from penstock import Store
from tests.conformance.clock import Clock


def test_each_tick_is_named_in_the_headers_of_its_message(store: Store, clock: Clock) -> None:
    store.schedule("hourly", "0 * * * *", "ticks", b"tick", headers={"own": "kept"}, catch_up="all")
    clock.advance(seconds=2 * 3600)
    store.sweep()
    headers = [delivery.headers for delivery in store.queue("ticks").receive(limit=10)]
    assert {(one["penstock-schedule"], one["own"]) for one in headers} == {("hourly", "kept")}
    ticks = [one["penstock-tick"] for one in headers]
    assert (len(ticks), len(set(ticks))) == (2, 2)
    assert all(tick.endswith(":00:00+00:00") for tick in ticks)
