"""The sending processes."""

from __future__ import annotations

from penstock.cli.demo import plan
from penstock.client.connection import connect


def send_orders(url: str, producer: int) -> None:
    """Through a producer, which gathers sends into batches."""
    with connect(url) as store:
        with store.queue(plan.ORDERS).producer(batch_size=50) as producing:
            for order in plan.orders(producer):
                producing.send(order)


def send_emails(url: str) -> None:
    """Many in one transaction."""
    with connect(url) as store:
        store.queue(plan.EMAILS).send_many(plan.emails())
