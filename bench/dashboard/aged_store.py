"""An aged store: a million messages wait, a million are finished, some are dead; other queues are small."""

from __future__ import annotations

import itertools

import penstock

PIECE = 10_000
SMALL, LARGE = "mail", "orders"
REASONS = ("HTTP 503 from gateway {0}", "customer {0} not found", "timeout after {0} ms")


def fill(url: str, waiting: int, finished: int, dead: int) -> None:
    with penstock.connect(url) as store:
        store.migrate()
        # A small, older queue: reading it must not cost more because of later messages.
        mail = store.queue(SMALL)
        mail.send_many([{"to": f"user{number}@example.com"} for number in range(40)])
        mail.ack_many(mail.receive(limit=20))
        orders = store.queue(LARGE)
        numbers = itertools.count()
        for _ in range(0, finished + dead, PIECE):
            orders.send_many([_order(next(numbers)) for _ in range(PIECE)])
        _finish(orders, finished)
        _kill(orders, dead)
        for _ in range(0, waiting, PIECE):
            orders.send_many([_order(next(numbers)) for _ in range(PIECE)])
        orders.receive(limit=100, consumer="worker-1", lease_seconds=3600)
        orders.receive(limit=100, group="billing", consumer="biller", lease_seconds=3600)
        batch = orders.batch("nightly")
        batch.send_many([_order(next(numbers)) for _ in range(1_000)])
        batch.start()


def _order(number: int) -> bytes:
    return b'{"order": %d, "customer": "c%d", "lines": "%s"}' % (number, number % 977, b"x" * 150)


def _finish(orders: penstock.Queue, finished: int) -> None:
    for _ in range(0, finished, PIECE):
        orders.ack_many(orders.receive(limit=PIECE, lease_seconds=600))


def _kill(orders: penstock.Queue, dead: int) -> None:
    for start in range(0, dead, PIECE):
        taken = orders.receive(limit=min(PIECE, dead - start), lease_seconds=600)
        orders.settle(
            [
                penstock.Reject(delivery, REASONS[number % len(REASONS)].format(number))
                for number, delivery in enumerate(taken)
            ]
        )
