"""Several receives in one transaction of a client (group commit), while others overtake."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg

from penstock import Queue, Store


def test_law_3_what_an_earlier_receive_of_the_transaction_took_is_not_overtaken(
    store: Store, queue: Queue, other: psycopg.Connection
) -> None:
    queue.send_many([{"n": n} for n in range(6)])
    first, overtaken, second, done = (threading.Event() for _ in range(4))
    engine = store.engine

    def receive(after: threading.Event, then: threading.Event) -> list[int]:
        rows = engine.receive("orders", "default", "a", 1, None).rows
        after.set()
        assert then.wait(60)
        return [row[0] for row in rows]

    threads = ThreadPoolExecutor(1)
    begun = threads.submit(engine.together, [lambda: receive(first, overtaken), lambda: receive(second, done)])
    assert first.wait(60)
    # The state of an overtaking receive: between two receives of the transaction, after the first moved the cursor.
    other.execute(
        "select pg_advisory_xact_lock_shared(penstock._lane_key(g.group_id, n.lane_id) + 1) "
        "from penstock.queue q join penstock.group g using (queue_id) join penstock.lane n using (queue_id) "
        "where q.name = 'orders' and n.priority = 0"
    )
    overtaken.set()
    assert second.wait(60)
    others = other.execute("select position from penstock.receive('orders', \"limit\" => 10)").fetchall()
    done.set()
    taken = [position for positions in begun.result(60) for position in positions]
    assert sorted([*taken, *(row[0] for row in others)]) == sorted({*taken, *(row[0] for row in others)})
    threads.shutdown()
    assert len(taken) == 2
    assert len(others) == 4


def test_a_transaction_within_a_group_does_not_wait_for_the_group(store: Store) -> None:
    """The first send to a queue makes it; a second connection of the same thread would wait for that for ever."""
    engine = store.engine
    queue = store.queue("new")

    def inner() -> list[object]:
        return engine.together([lambda: queue.send(2), lambda: queue.send(3)])

    engine.together([lambda: queue.send(1), inner])
    assert [one.json() for one in queue.receive(limit=10)] == [1, 2, 3]
