"""Receives in transactions that stay open, as in `begin; dequeue; work; ack; commit`: nobody waits for them, and
whatever becomes of them, each message is delivered under one live lease and none is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest

from penstock import Queue, Store

RECEIVE = 'select id, token, payload, attempt from penstock.receive(%s, "limit" => %s)'
ACK = "select penstock.ack(%s, %s, %s)"


@pytest.fixture
def clients(postgres_url: str) -> Iterator[list[psycopg.Connection]]:
    """Clients with a transaction each, who would rather fail than wait."""
    options = "-c statement_timeout=20s"
    connections = [psycopg.connect(postgres_url, options=options) for _ in range(4)]
    yield connections
    for connection in connections:
        connection.close()


def receive(client: psycopg.Connection, limit: int = 1, queue: str = "orders") -> list[bytes]:
    return [row[2] for row in client.execute(RECEIVE, [queue, limit]).fetchall()]


def fill(queue: Queue, count: int = 5) -> list[bytes]:
    payloads = [str(number).encode() for number in range(count)]
    for payload in payloads:
        queue.send(payload)
    return payloads


def test_open_receives_get_different_messages(queue: Queue, clients: list[psycopg.Connection]) -> None:
    fill(queue, 5)
    begun = time.monotonic()
    assert [receive(client) for client in clients] == [[b"0"], [b"1"], [b"2"], [b"3"]]
    assert queue.receive(limit=10)[0].payload == b"4"
    assert time.monotonic() - begun < 2
    for client in clients:
        client.commit()
    assert queue.receive() == []
    assert queue.stats("default").in_progress == 5


def test_one_transaction_may_receive_again(queue: Queue, clients: list[psycopg.Connection]) -> None:
    fill(queue, 8)
    first, second = clients[:2]
    assert receive(first, 2) == [b"0", b"1"]
    assert receive(first) == [b"2"]
    assert receive(second, 2) == [b"3", b"4"]
    assert receive(first) == [b"5"]
    first.rollback()
    assert receive(second, 9) == [b"0", b"1", b"2", b"5", b"6", b"7"]
    second.rollback()
    assert [one.payload for one in queue.receive(limit=9)] == [b"%d" % number for number in range(8)]


@pytest.mark.parametrize("last", ["commit", "rollback"])
@pytest.mark.parametrize("first", ["commit", "rollback"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_they_end_in_any_order(
    queue: Queue, clients: list[psycopg.Connection], first: str, last: str, order: tuple[int, int]
) -> None:
    fill(queue, 6)
    taken = [receive(clients[0], 2), receive(clients[1], 2)]
    ends = dict(zip(order, (first, last), strict=True))
    for client in order:
        getattr(clients[client], ends[client])()
    left = [payload for client in (0, 1) if ends[client] == "rollback" for payload in taken[client]] + [b"4", b"5"]
    assert [one.payload for one in queue.receive(limit=9)] == left
    assert queue.stats("default").in_progress == 6


def test_what_was_rolled_back_comes_once_and_its_attempts_have_no_gap(
    queue: Queue, clients: list[psycopg.Connection]
) -> None:
    fill(queue, 2)
    receive(clients[0])
    receive(clients[1])
    clients[1].rollback()
    clients[0].rollback()
    deliveries = queue.receive(limit=5)
    assert [(one.payload, one.attempt) for one in deliveries] == [(b"0", 1), (b"1", 1)]
    queue.ack_many(deliveries)
    assert queue.receive(limit=5) == []


def test_work_is_settled_in_the_transaction_that_received_it(queue: Queue, clients: list[psycopg.Connection]) -> None:
    fill(queue, 4)
    acked: list[str] = []
    for client in clients:
        [(message_id, token, _, _)] = client.execute(RECEIVE, ["orders", 1]).fetchall()
        client.execute(ACK, ["orders", message_id, token])
        acked.append(str(message_id))
    for client in reversed(clients):
        client.commit()
    stats = queue.stats("default")
    assert (stats.done, stats.available, stats.in_progress) == (4, 0, 0)
    for message_id in acked:
        assert [entry.event for entry in queue.audit(message_id)] == ["send", "receive", "ack"]


def test_receives_of_two_queues_in_opposite_order_do_not_deadlock(
    store: Store, clients: list[psycopg.Connection]
) -> None:
    for name in "ab":
        fill(store.queue(name), 3)
    assert [receive(clients[0], queue="a"), receive(clients[1], queue="b")] == [[b"0"], [b"0"]]
    assert [receive(clients[0], queue="b"), receive(clients[1], queue="a")] == [[b"1"], [b"1"]]


def test_an_ordered_queue_goes_on_in_other_shards(store: Store, clients: list[psycopg.Connection]) -> None:
    queue = store.queue("orders", ordered=True, shards=2)
    for key in ("a", "b", "c", "d", "e", "f"):
        queue.send(key.encode(), key=key)
    held = receive(clients[0])
    got = receive(clients[1], 9)
    assert set(held) & set(got) == set()
    assert got != []
    assert receive(clients[2], 9) == []
    clients[0].rollback()
    again = receive(clients[2], 9)
    assert sorted(got + again) == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_an_ordered_queue_waits_for_the_better_lane_of_a_shard_that_is_free(
    store: Store, clients: list[psycopg.Connection]
) -> None:
    """When a transaction ends, its locks are released one by one: that of the shard may be the first."""
    queue = store.queue("orders", ordered=True)
    queue.send(b"worse", key="a", priority=1)
    queue.send(b"better", key="a")
    ending = clients[0]
    ending.execute(
        "select pg_advisory_xact_lock(penstock._lane_key(g.group_id, n.lane_id)) "
        "from penstock.group as g join penstock.lane as n using (queue_id) where n.priority = 0"
    )
    assert receive(clients[1], 2) == []
    ending.rollback()
    assert receive(clients[1], 2) == [b"better", b"worse"]


def test_priorities_are_kept_when_a_lane_is_overtaken(queue: Queue, clients: list[psycopg.Connection]) -> None:
    for number in range(3):
        queue.send(b"worse", priority=5)
        queue.send(b"better %d" % number)
    assert receive(clients[0]) == [b"better 0"]
    assert receive(clients[1], 3) == [b"better 1", b"better 2", b"worse"]


def test_what_is_over_is_not_handed_out_ahead_of_its_turn(store: Store, clients: list[psycopg.Connection]) -> None:
    queue = store.queue("orders")
    queue.send(b"first")
    queue.send(b"expired", ttl_seconds=0.001)
    batch = queue.batch("nightly")
    batch.send(b"cancelled")
    batch.start()
    batch.cancel()
    queue.send(b"last")
    assert receive(clients[0]) == [b"first"]
    assert receive(clients[1], 9) == [b"last"]
    for client in clients[:2]:
        client.rollback()
    assert [one.payload for one in queue.receive(limit=9)] == [b"first", b"last"]
    assert {one.payload for one in queue.dead_letters()} == {b"expired", b"cancelled"}


def test_a_lock_of_somebody_else_with_small_numbers_stops_nothing(
    queue: Queue, clients: list[psycopg.Connection]
) -> None:
    fill(queue, 1)
    clients[0].execute("select pg_advisory_lock(a, b) from generate_series(0, 20) as a, generate_series(0, 20) as b")
    assert receive(clients[1]) == [b"0"]


def test_maintenance_goes_on_and_administration_says_who_is_in_the_way(
    store: Store, queue: Queue, clients: list[psycopg.Connection]
) -> None:
    fill(queue, 2)
    queue.send(b"short", ttl_seconds=0.001)
    receive(clients[0])
    store.sweep()
    assert queue.stats("default").available == 3
    pid = clients[0].info.backend_pid
    for verb in ("flush('orders')", "seek('orders', 'default', 'start')", "trim('orders', keep => 1)"):
        with pytest.raises(psycopg.errors.LockNotAvailable, match=f"open transaction of session {pid}"):
            clients[1].execute(f"select penstock.{verb}")
        clients[1].rollback()
    clients[0].rollback()
    store.sweep()
    assert queue.stats("default").available == 2
    assert queue.flush() == 3


class TestOwnSends:
    """A transaction receives what it sent itself."""

    def test_send_receive_and_ack(self, queue: Queue, clients: list[psycopg.Connection]) -> None:
        client = clients[0]
        client.execute("select penstock.send('orders', '1')")
        [(message_id, token, payload, attempt)] = client.execute(RECEIVE, ["orders", 5]).fetchall()
        assert (payload, attempt) == (b"1", 1)
        assert receive(client) == []
        client.execute(ACK, ["orders", message_id, token])
        client.commit()
        assert queue.receive() == []
        assert queue.stats("default").done == 1
        assert [entry.event for entry in queue.audit(str(message_id))] == ["send", "receive", "ack"]

    def test_nothing_is_left_of_it_after_a_rollback(self, queue: Queue, clients: list[psycopg.Connection]) -> None:
        clients[0].execute("select penstock.send('orders', '1')")
        assert receive(clients[0]) == [b"1"]
        clients[0].rollback()
        assert queue.receive() == []
        assert queue.stats("default").total == 0
        fill(queue, 1)
        assert [one.payload for one in queue.receive(limit=5)] == [b"0"]

    def test_it_comes_after_what_others_have_sent_and_by_priority(
        self, queue: Queue, clients: list[psycopg.Connection]
    ) -> None:
        clients[1].execute("select penstock.prepare('orders', '{0,1,3}')")
        clients[1].commit()
        clients[0].execute("select penstock.send('orders', '\"own\"')")
        clients[0].execute("select penstock.send('orders', '\"own and worse\"', priority => 3)")
        clients[0].execute("select penstock.send('orders', '\"own and better\"', priority => 1)")
        queue.send(b"other", priority=1)
        assert receive(clients[0], 9) == [b'"own"', b"other", b'"own and better"', b'"own and worse"']

    def test_the_calls_of_the_stored_procedures(
        self, watcher: psycopg.Connection, clients: list[psycopg.Connection]
    ) -> None:
        watcher.execute("select penstock.create_queue_schema('jobs')")
        client = clients[0]
        client.execute("call jobs.enqueue('{\"k\": 1}')")
        row = client.execute("select msg_id, msg_json from jobs.dequeue('one')").fetchone()
        assert row is not None
        assert row[1] == {"k": 1}
        client.execute("call jobs.message_ack(%s, 'one')", row[:1])
        client.commit()
        assert watcher.execute("select count(*) from jobs.message_history").fetchone() == (1,)

    def test_an_ordered_queue(self, store: Store, clients: list[psycopg.Connection]) -> None:
        store.queue("orders", ordered=True).send(b"before", key="a")
        for number in (1, 2):
            clients[0].execute("select penstock.send('orders', %s, key => 'a')", [str(number)])
        assert receive(clients[0], 9) == [b"before", b"1", b"2"]


@pytest.mark.parametrize("stays", ["holder", "overtaker", "both"])
def test_the_cost_of_a_receive_does_not_grow_while_another_stays_open(
    queue: Queue, clients: list[psycopg.Connection], postgres_url: str, stays: str
) -> None:
    holder, overtaker = clients[:2]
    queue.send_many([b"x"] * 7_000)
    assert len(receive(holder)) == len(receive(overtaker)) == 1
    if stays == "overtaker":
        holder.commit()
    elif stays == "holder":
        overtaker.commit()
    _take(queue, 1_500)
    early = _rows_read(postgres_url)
    _take(queue, 5_000)
    assert _rows_read(postgres_url) < 2 * early
    for one in clients:
        one.rollback()
    left = {"holder": 1, "overtaker": 1, "both": 2}[stays]
    assert len(queue.receive(limit=1_000)) == 7_000 - 6_502 + left


def test_the_cursor_follows_receives_that_overlap_all_the_time(queue: Queue, clients: list[psycopg.Connection]) -> None:
    queue.send_many([b"x"] * 1_000)
    receive(clients[0], 10)
    for turn in range(1, 81):
        receive(clients[turn % 3], 10)
        clients[(turn + 2) % 3].commit()
    row = clients[3].execute("select count(*) from penstock.skip").fetchone()
    assert row is not None
    assert row[0] < 100
    for client in clients:
        client.commit()
    assert len(queue.receive(limit=1_000)) == 1_000 - 810
    assert queue.stats("default").in_progress == 1_000


@pytest.mark.parametrize("undo", ["rollback", "rollback to before"])
def test_what_is_given_back_behind_many_overtaken_messages_comes_next(
    queue: Queue, clients: list[psycopg.Connection], undo: str
) -> None:
    holder, overtaker = clients[:2]
    queue.send_many([b"%d" % number for number in range(3_000)])
    assert receive(holder) == [b"0"]
    assert receive(overtaker) == [b"1"]
    overtaker.execute("savepoint before")
    assert receive(overtaker, 2) == [b"2", b"3"]
    _take(queue, 2_000)
    overtaker.execute(undo)
    came_back = [b"1", b"2", b"3"] if undo == "rollback" else [b"2", b"3"]
    assert [one.payload for one in queue.receive(limit=len(came_back) + 1)] == [*came_back, b"2004"]
    _take(queue, 600)
    holder.rollback()
    assert queue.receive()[0].payload == b"0"


def _take(queue: Queue, count: int) -> None:
    while count > 0:
        received = queue.receive(limit=100)
        assert received
        queue.ack_many(received)
        count -= len(received)


def _rows_read(url: str) -> int:
    """Messages that a receive looks at. It is undone. A new session, because its counts are of the whole session."""
    with psycopg.connect(url) as client:
        assert len(receive(client)) == 1
        row = client.execute("select idx_tup_fetch from pg_stat_xact_user_tables where relname = 'log'").fetchone()
        client.rollback()
    assert row is not None
    return int(row[0])


def test_a_message_locked_by_name_behind_open_receives_is_locked_once(
    queue: Queue, clients: list[psycopg.Connection]
) -> None:
    """The LISTEN/NOTIFY conventions lock a message by its id, here while another receive overtakes."""
    first, overtaker, one, other = clients
    other.execute("select penstock.create_message_schema('messages', 'orders')")
    other.commit()
    fill(queue, 4)
    assert receive(first) == [b"0"]
    assert receive(overtaker) == [b"1"]
    first.commit()
    lock = """update messages.message set lock_expires_at = current_timestamp + interval '1 minute'
              where message = '2' and lock_expires_at is null returning id"""
    assert len(one.execute(lock).fetchall()) == 1
    assert other.execute(lock).fetchall() == []
    assert receive(other, 9) == [b"3"]


def test_a_transaction_that_overtakes_does_not_use_up_the_locks_of_the_server(
    queue: Queue, clients: list[psycopg.Connection]
) -> None:
    holder, overtaker, watcher = clients[:3]
    queue.send_many([b"x"] * 6_000)
    assert len(receive(holder)) == 1
    taken = sum(len(receive(overtaker, 100)) for _ in range(50))
    row = watcher.execute("select count(*) from pg_locks where locktype = 'advisory'").fetchone()
    assert row is not None
    assert row[0] < 4_000
    overtaker.commit()
    assert len(receive(overtaker, 100)) == 100
    overtaker.commit()
    holder.rollback()
    assert len(queue.receive(limit=6_000)) == 6_000 - taken - 100
