"""doctor: findings and advice."""

from __future__ import annotations

from penstock import Queue, Store
from tests.conformance.assertions import take
from tests.conformance.clock import Clock


def test_a_healthy_store_has_nothing_but_good_findings(queue: Queue, store: Store) -> None:
    queue.send(1)
    take(queue).ack()
    checks = store.doctor()
    if store.engine.name in ("postgres", "redis"):
        # The test servers run without fsync, which doctor reports.
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


def _advice(store: Store) -> list[str]:
    return [check.advice or "" for check in store.doctor() if check.name == "groups"]


def test_a_primary_group_that_only_others_read_is_explained(queue: Queue, store: Store) -> None:
    queue.send_many([1, 2])
    assert _advice(store) == []
    take(queue, group="billing").ack()
    (advice,) = _advice(store)
    assert f"penstock queues declare {queue.name} primary_group=GROUP" in advice
    store.queue(queue.name, primary_group="billing")
    assert _advice(store) == []


def test_a_group_that_nobody_uses_is_not_received_from(queue: Queue, store: Store, clock: Clock) -> None:
    """A receive would lease a message that no handler processes."""
    queue.send_many([1, 2])
    take(queue).ack()
    take(queue, group="billing").ack()
    clock.advance(seconds=2 * 3_600)
    store.sweep()
    advice = _advice(store)
    assert len(advice) == 2
    assert all("penstock worker" in one and "penstock peek" in one for one in advice)
    assert not any("receive" in (check.advice or "") for check in store.doctor())
