"""doctor: what is wrong with a store, and what to do about it."""

from __future__ import annotations

from penstock import Queue, Store
from tests.conformance.clock import Clock
from tests.conformance.moves import take


def test_a_healthy_store_has_nothing_but_good_findings(queue: Queue, store: Store) -> None:
    queue.send(1)
    take(queue).ack()
    checks = store.doctor()
    if store.engine.name == "postgres":
        # The server of the tests does not wait for the disk, and the doctor says so.
        assert [check.name for check in checks if check.level == "warning"] == ["durability"]
        checks = [check for check in checks if check.name != "durability"]
    assert len(checks) >= 3
    assert {check.level for check in checks} == {"ok"}
    assert all(check.name and check.finding for check in checks)
    assert len({check.name for check in checks}) == len(checks)


def test_leases_that_lapsed_without_a_sweep_are_found_with_advice(queue: Queue, store: Store, clock: Clock) -> None:
    queue.send(1)
    take(queue)
    clock.advance(seconds=3 * 86_400)
    troubles = [check for check in store.doctor() if check.level != "ok"]
    assert troubles
    assert all(check.advice for check in troubles)
    assert any("sweep" in (check.advice or "") + check.finding for check in troubles)


def test_looking_changes_nothing(queue: Queue, store: Store, clock: Clock) -> None:
    message_id = queue.send(1)
    take(queue)
    clock.advance(seconds=38)
    store.doctor()
    assert len(queue.audit(message_id)) == 2
