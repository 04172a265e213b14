"""The consumer processes: they ack, nak and reject, and one of them is killed."""

from __future__ import annotations

from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event

import msgspec

from penstock.cli.demo import plan
from penstock.cli.demo.plan import Fate
from penstock.cli.demo.processes import parent_has_exited
from penstock.client.connection import connect
from penstock.client.delivery import Delivery
from penstock.client.queue import Queue
from penstock.domain.settlement import Ack, Nak, Reject, Settlement

RECEIVE_LIMIT = 20
IDLE_SECONDS = 0.2


class Tally(msgspec.Struct):
    """The counts of one consumer, sent to the parent at its end."""

    received: int = 0
    retried: int = 0
    lost: int = 0
    ends: int = 0


def consume(url: str, name: str, readers: list[tuple[str, str]], go: Event, stop: Event, report: Connection) -> None:
    """Consume several queues in turn until `stop` is set."""
    tally = Tally()
    with connect(url) as store:
        while not go.wait(IDLE_SECONDS) and not parent_has_exited():
            pass
        while not stop.is_set() and not parent_has_exited():
            seen = store.engine.seen()
            counts = [_work(store.queue(queue), group, name, tally) for queue, group in readers]
            if not any(counts):
                store.engine.wait(seen, IDLE_SECONDS)
    report.send(tally)


def hold_and_hang(url: str, report: Connection) -> None:
    """Receive messages, report their ids, and never settle them: the parent kills this process while it holds them."""
    with connect(url) as store:
        deliveries: list[Delivery] = []
        while len(deliveries) < plan.VICTIM_COUNT and not parent_has_exited():
            wanted = plan.VICTIM_COUNT - len(deliveries)
            deliveries += store.queue(plan.ORDERS).receive(wanted, consumer=plan.VICTIM, wait_seconds=1)
        report.send([delivery.id for delivery in deliveries])
        with suppress(EOFError):
            report.recv()  # blocks until the parent ends


def _work(queue: Queue, group: str, name: str, tally: Tally) -> int:
    deliveries = queue.receive(RECEIVE_LIMIT, group=group, consumer=name)
    settlements = [_settlement(delivery) for delivery in deliveries]
    results = queue.settle(settlements)
    tally.received += len(deliveries)
    tally.retried += sum(isinstance(one, Nak) for one in settlements)
    tally.lost += sum(not result.ok for result in results)
    tally.ends += sum(
        result.ok and delivery.json() == plan.END for delivery, result in zip(deliveries, results, strict=True)
    )
    return len(deliveries)


def _settlement(delivery: Delivery) -> Settlement:
    """Analytics acks everything; orders end as the plan says."""
    order = delivery.json().get("order")
    if order is None or delivery.group == plan.ANALYTICS:
        return Ack(delivery)
    fate = plan.order_fate(order)
    if fate is Fate.REJECT:
        return Reject(delivery, plan.REASONS[fate])
    if fate is Fate.FAIL_ALWAYS or (fate is Fate.FAIL_ONCE and delivery.attempt == 1):
        return Nak(delivery, plan.REASONS[fate])
    return Ack(delivery)
