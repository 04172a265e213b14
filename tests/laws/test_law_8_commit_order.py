"""Law 8: a reader that moved past a position never misses a message that commits later behind it.

Positions are taken when a message is sent and seen when its transaction commits, in whatever order these end. So every
test here has senders that dawdle, and a reader that passes them by.
"""

from __future__ import annotations

import random
import threading
import time

import psycopg
import pytest

import penstock
from penstock import Queue


def finish(queue: Queue, limit: int = 100) -> list[bytes]:
    """Receive all ready messages and ack them."""
    deliveries = queue.receive(limit=limit)
    queue.ack_many(deliveries)
    return [delivery.payload for delivery in deliveries]


def test_law_8_a_sender_that_holds_its_transaction_open_is_passed_by_and_not_forgotten(
    postgres_url: str, queue: Queue
) -> None:
    with psycopg.connect(postgres_url) as slow:
        queue.send(b"first", transaction=slow)
        for number in range(5):
            queue.send(f"later {number}".encode())
            # Readers do not wait for the open transaction ...
            assert finish(queue) == [f"later {number}".encode()]
        slow.commit()
    # ... and its message is not lost.
    assert finish(queue) == [b"first"]
    assert finish(queue) == []
    assert queue.stats("default").done == 6


def test_law_8_several_slow_senders_commit_in_the_opposite_order(postgres_url: str, queue: Queue) -> None:
    slow = [psycopg.connect(postgres_url) for _ in range(4)]
    try:
        for number, connection in enumerate(slow):
            queue.send_many([f"{number} a".encode(), f"{number} b".encode()], transaction=connection)
        for number, connection in reversed(list(enumerate(slow))):
            connection.commit()
            assert finish(queue) == [f"{number} a".encode(), f"{number} b".encode()]
    finally:
        for connection in slow:
            connection.close()
    assert finish(queue) == []


def test_law_8_a_window_in_the_middle_of_being_read_keeps_what_commits_meanwhile(
    postgres_url: str, queue: Queue
) -> None:
    """The cursor is inside a window when older transactions commit."""
    with psycopg.connect(postgres_url) as slow:
        queue.send(b"slow", transaction=slow)
        queue.send_many([f"{number}".encode() for number in range(10)])
        assert finish(queue, limit=3) == [b"0", b"1", b"2"]
        slow.commit()
    got = finish(queue, limit=2) + finish(queue, limit=100) + finish(queue) + finish(queue)
    assert sorted(got) == sorted([*(f"{number}".encode() for number in range(3, 10)), b"slow"])


def test_law_8_a_rolled_back_sender_leaves_nothing(postgres_url: str, queue: Queue) -> None:
    with psycopg.connect(postgres_url) as undone:
        queue.send(b"undone", transaction=undone)
        queue.send(b"kept")
        assert finish(queue) == [b"kept"]
        undone.rollback()
    queue.send(b"after")
    assert finish(queue) == [b"after"]
    assert queue.stats("default").total == 2


def test_law_8_savepoints(postgres_url: str, queue: Queue) -> None:
    with psycopg.connect(postgres_url) as connection:
        with connection.transaction():
            queue.send(b"outer", transaction=connection)
            with connection.transaction(force_rollback=True):
                queue.send(b"inner, undone", transaction=connection)
            with connection.transaction():
                queue.send(b"inner, kept", transaction=connection)
            queue.send(b"quick")
            assert finish(queue) == [b"quick"]
    assert finish(queue) == [b"outer", b"inner, kept"]
    assert finish(queue) == []


def test_law_8_two_phase_commit(postgres_url: str, queue: Queue) -> None:
    with psycopg.connect(postgres_url) as first, psycopg.connect(postgres_url) as second:
        for connection, name in ((first, "kept"), (second, "undone")):
            connection.tpc_begin(connection.xid(1, name, "orders"))
            queue.send(name.encode(), transaction=connection)
            connection.tpc_prepare()
        queue.send(b"between")
        assert finish(queue) == [b"between"]
        first.tpc_commit()
        second.tpc_rollback()
    assert finish(queue) == [b"kept"]
    assert finish(queue) == []


def test_law_8_every_group_and_a_stream_see_the_late_message_once(postgres_url: str, queue: Queue) -> None:
    engine = queue.engine
    start = engine.horizon("orders")
    with psycopg.connect(postgres_url) as slow:
        queue.send(b"slow", transaction=slow)
        queue.send(b"quick")
        middle = engine.horizon("orders")
        assert [one.payload for one in queue.receive(limit=10, group="audit")] == [b"quick"]
        slow.commit()
    end = engine.horizon("orders")
    windows = [_payloads(queue, start, middle), _payloads(queue, middle, end)]
    assert windows == [[b"quick"], [b"slow"]]
    # Law 11: the same window always holds the same rows.
    assert [_payloads(queue, start, middle), _payloads(queue, middle, end)] == windows
    assert sorted(_payloads(queue, start, end)) == [b"quick", b"slow"]
    assert [one.payload for one in queue.receive(limit=10, group="audit")] == [b"slow"]
    assert finish(queue) != []


def _payloads(queue: Queue, start: int | str, end: int | str) -> list[bytes]:
    parts = queue.engine.window("orders", start, end, 3)
    return [row["payload"] for part in parts for batch in queue.engine.read(part) for row in batch.to_pylist()]


def test_law_8_dawdling_senders_and_hasty_readers(postgres_url: str, queue: Queue, seed: int) -> None:
    """Transactions of every kind that end in any order while two consumers read: committed messages are delivered
    exactly once (no lease ends here), others never."""
    sent: dict[str, bool] = {}
    over = threading.Event()
    received: list[list[bytes]] = [[], []]
    senders = [
        threading.Thread(target=_dawdle, args=(postgres_url, f"{number}", random.Random(seed + number), sent))
        for number in range(6)
    ]
    readers = [threading.Thread(target=_read_on, args=(postgres_url, over, one)) for one in received]
    for thread in (*senders, *readers):
        thread.start()
    for thread in senders:
        thread.join()
    over.set()
    for thread in readers:
        thread.join()
    got = [payload.decode() for payload in (*received[0], *received[1], *finish(queue, 1_000_000))]
    assert sorted(got) == sorted(name for name, is_kept in sent.items() if is_kept)
    assert not all(sent.values()), "some must have been rolled back"


def _dawdle(url: str, name: str, chance: random.Random, sent: dict[str, bool]) -> None:
    with penstock.connect(url) as store, psycopg.connect(url) as connection:
        queue = store.queue("orders")
        for number in range(30):
            names = [f"{name}/{number}/{place}" for place in range(chance.randrange(1, 5))]
            act = chance.choice((_alone, _commit, _commit, _rollback, _inner_rollback))
            sent.update(dict.fromkeys(names, act(queue, connection, names, chance)))


def _alone(queue: Queue, connection: psycopg.Connection, names: list[str], chance: random.Random) -> bool:
    queue.send_many([name.encode() for name in names])
    return True


def _commit(queue: Queue, connection: psycopg.Connection, names: list[str], chance: random.Random) -> bool:
    for name in names:
        queue.send(name.encode(), transaction=connection)
        _dawdle_a_little(chance)
    connection.commit()
    return True


def _rollback(queue: Queue, connection: psycopg.Connection, names: list[str], chance: random.Random) -> bool:
    queue.send_many([name.encode() for name in names], transaction=connection)
    _dawdle_a_little(chance)
    connection.rollback()
    return False


def _inner_rollback(queue: Queue, connection: psycopg.Connection, names: list[str], chance: random.Random) -> bool:
    with connection.transaction():
        with connection.transaction(force_rollback=True):
            queue.send_many([name.encode() for name in names], transaction=connection)
            _dawdle_a_little(chance)
    return False


def _dawdle_a_little(chance: random.Random) -> None:
    # The pause is what is tested: a transaction that is open while others end.
    time.sleep(chance.random() * 0.02)


def _read_on(url: str, over: threading.Event, received: list[bytes]) -> None:
    with penstock.connect(url) as store:
        queue = store.queue("orders")
        while not over.is_set():
            deliveries = queue.receive(limit=7, wait_seconds=0.05, lease_seconds=600)
            queue.ack_many(deliveries)
            received += [delivery.payload for delivery in deliveries]


@pytest.mark.parametrize("seed", [7, 1902, 55_013])
def test_law_8_windows_that_are_cut_and_split_anywhere_hold_everything_once(
    postgres_url: str, queue: Queue, seed: int
) -> None:
    chance = random.Random(seed)
    engine, mark = queue.engine, queue.engine.earliest("orders")
    open_: list[tuple[psycopg.Connection, list[bytes]]] = []
    # Create its lanes before any transaction is held open.
    sent = [f"first {priority}".encode() for priority in range(3)]
    queue.send_many([penstock.Outgoing(payload=one, priority=priority) for priority, one in enumerate(sent)])
    read: list[bytes] = []

    def read_on(rows: int) -> None:
        nonlocal mark
        start, mark = mark, engine.cut("orders", mark, engine.horizon("orders"), rows)
        if start != mark:
            for part in engine.window("orders", start, mark, chance.randint(1, 3)):
                read.extend(row for batch in engine.read(part, 4, ["payload"]) for row in batch["payload"].to_pylist())

    try:
        for step in range(60):
            payloads = [f"{step} {number}".encode() for number in range(chance.randint(1, 9))]
            priority = chance.randint(0, 2)
            match chance.choice(["open", "open", "commit", "rollback", "send", "read", "read"]):
                case "open":
                    connection = psycopg.connect(postgres_url)
                    queue.send_many(
                        [penstock.Outgoing(payload=one, priority=priority) for one in payloads], transaction=connection
                    )
                    open_.append((connection, payloads))
                case "commit" | "rollback" as end if open_:
                    connection, held = open_.pop(chance.randrange(len(open_)))
                    if end == "commit":
                        connection.commit()
                        sent += held
                    connection.close()
                case "send":
                    queue.send_many([penstock.Outgoing(payload=one, priority=priority) for one in payloads])
                    sent += payloads
                case "read":
                    read_on(chance.choice([1, 3, 8, 1000]))
    finally:
        for connection, _ in open_:
            connection.close()
    while mark != engine.horizon("orders"):
        read_on(1000)
    assert sorted(read) == sorted(sent)
