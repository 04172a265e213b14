"""A sweep that stalls at any of its calls, while another one does the same work, fires no tick twice; and a delete that
stalls deletes no queue that is scheduled meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import penstock
from tests.conformance.clock import Clock
from tests.engines.redis.server import fresh_store

# More than a sweep of one queue and one schedule reads the clock.
CALLS = 8


class StallingClock:
    """The clock of a client that stalls at its n-th call, until `meanwhile` has ended."""

    def __init__(self, clock: Clock, call: int, meanwhile: Callable[[], object]) -> None:
        self._clock = clock
        self._meanwhile = meanwhile
        self.calls_left = call

    def __call__(self) -> int:
        self.calls_left -= 1
        if self.calls_left == 0:
            self._meanwhile()
        return self._clock()


@pytest.mark.parametrize("call", range(1, CALLS + 1))
def test_a_tick_is_not_sent_again_after_its_message_was_trimmed(call: int) -> None:
    url, clock = fresh_store(), Clock()
    received: list[str] = []

    def work() -> None:
        """Fire the tick, process its message, and trim it."""
        other.sweep()
        for delivery in other.queue("reports").receive(limit=10):
            received.append(delivery.headers["penstock-tick"])
            delivery.ack()
        for _ in range(2):
            clock.advance(seconds=1)
            other.sweep()

    stalling = StallingClock(clock, call, work)
    with penstock.connect(url, clock=clock) as other, penstock.connect(url, clock=stalling) as store:
        other.queue("reports", history_seconds=0)
        other.schedule("nightly", "0 3 * * *", "reports", {}, catch_up="all")
        clock.advance(seconds=86_400)
        store.sweep()
        work()
        assert received == ["2026-03-06T03:00:00+00:00"]
        assert other.queue("reports").count() == 0


def test_a_schedule_that_is_made_again_fires_again() -> None:
    clock = Clock()
    with penstock.connect(fresh_store(), clock=clock) as store:
        for _ in range(2):
            store.schedule("nightly", "0 3 * * *", "reports", {}, catch_up="all")
            clock.advance(seconds=86_400)
            assert store.sweep().fired == 1
            store.unschedule("nightly")
        assert len(store.queue("reports").receive(limit=10)) == 2


def test_a_queue_for_which_a_schedule_is_declared_meanwhile_is_not_deleted() -> None:
    url, clock = fresh_store(), Clock()
    with penstock.connect(url, clock=clock) as other:
        other.queue("reports").send(1)
        stalling = StallingClock(clock, 1, lambda: other.schedule("nightly", "0 3 * * *", "reports", {}))
        with penstock.connect(url, clock=stalling) as store, pytest.raises(penstock.Refused, match="nightly"):
            store.queue("reports").delete()
        assert other.queue("reports").count() == 1
        other.unschedule("nightly")
        assert other.queue("reports").delete() == 1
