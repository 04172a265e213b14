"""A store with every outcome, and the rows of stores and lakes as comparable values."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pyspark.sql import DataFrame

from penstock import Store
from penstock.engines import tables
from penstock.engines.contract import Table


def fill(store: Store, messages: int = 60, name: str = "orders") -> None:
    """Send messages of which some are acked, some rejected, and some fail and wait; one ends while it is held."""
    queue = store.queue(name, max_retries=1)
    queue.send_many([{"order": number, "of": name} for number in range(messages)])
    queue.send("held until its time is up", delay_seconds=60, ttl_seconds=0.001)
    deliveries = queue.receive(limit=messages, consumer="ada")
    for delivery in deliveries[::7]:
        delivery.reject(f"order {delivery.json()['order']} is wrong")
    for delivery in deliveries[1::7]:
        delivery.nak("busy", delay_seconds=0)
    queue.ack_many([one for place, one in enumerate(deliveries) if place % 7 > 2])
    store.sweep()


def store_rows(store: Store, table: Table) -> Counter[tuple[Any, ...]]:
    """Every row of a table of all queues, read from the engine."""
    engine, found = store.engine, Counter[tuple[Any, ...]]()
    for info in store.queues():
        start, end = engine.earliest(info.name, table), engine.horizon(info.name, table)
        for part in engine.window(info.name, start, end, 1, table):
            for batch in engine.read(part):
                found.update(_values(row) for row in batch.to_pylist())
    return found


def lake_rows(frame: DataFrame, table: Table) -> Counter[tuple[Any, ...]]:
    """Every row of a table of the lake, without the columns that the lake adds."""
    rows = frame.select(*(f"`{name}`" for name in tables.columns_of(table))).toArrow().to_pylist()
    return Counter(_values(row) for row in rows)


def _values(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in sorted(row))
