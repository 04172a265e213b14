"""A call that fails midway has no effect (law 14)."""

from __future__ import annotations

import pytest

from penstock import DuplicateAddress, Outgoing, PayloadTooLarge, Queue, Store

TOO_LARGE = bytes(16 * 1024 * 1024 + 1)


def test_a_refused_send_does_not_make_its_queue(store: Store) -> None:
    with pytest.raises(PayloadTooLarge):
        store.queue("fresh").send(TOO_LARGE)
    assert "fresh" not in [queue.name for queue in store.queues()]


def test_a_refused_end_message_does_not_make_its_batch(store: Store) -> None:
    with pytest.raises(PayloadTooLarge):
        store.queue("fresh").batch("nightly").set_end(TOO_LARGE)
    assert "fresh" not in [queue.name for queue in store.queues()]


def test_a_send_whose_last_message_is_refused_sends_none(queue: Queue) -> None:
    with pytest.raises(DuplicateAddress):
        queue.send_many([Outgoing(payload=1, address="a"), Outgoing(payload=2), Outgoing(payload=3, address="a")])
    assert queue.count() == 0
    queue.send(4, address="a")
