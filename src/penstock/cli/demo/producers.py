"""The producer processes."""

from __future__ import annotations

from penstock.cli.demo import plan
from penstock.client.connection import connect


def send_orders(url: str, producer: int) -> None:
    """Send through a producer, which batches sends."""
    with connect(url) as store:
        with store.queue(plan.ORDERS).producer(batch_size=50) as buffered:
            for order in plan.orders(producer):
                buffered.send(order)


def send_emails(url: str) -> None:
    """Send many messages in one transaction."""
    with connect(url) as store:
        store.queue(plan.EMAILS).send_many(plan.emails())
