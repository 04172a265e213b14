"""Calls in one packet: which are made that way, and that the others are made as before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from pymysql.cursors import Cursor

import penstock
from penstock.domain.lifecycle import Event
from penstock.domain.message import PLAIN, Draft, Options
from penstock.domain.settlement import Settle
from penstock.engines.contract import POSITION
from penstock.engines.mariadb import MariadbEngine, open_mariadb
from penstock.engines.mariadb.short_calls import ShortCalls
from tests.conformance.clock import Clock
from tests.engines.mariadb.server import IS_MYSQL, own_connection

pytestmark = pytest.mark.skipif(IS_MYSQL, reason="MySQL has no compound statements")
QUEUE, CONSUMER = "orders", "c1"
ONE: list[Draft] = [(b"1", None, PLAIN)]


class Scene:
    """A queue that has been used, so that a plain call on it can be made in one packet."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = Clock()
        self.engine: MariadbEngine = open_mariadb(url, clock=self.clock)
        self.engine.send(QUEUE, ONE)
        self.settle(Event.ACK)

    def settle(self, event: Event) -> None:
        receipt = self.engine.receive(QUEUE, None, CONSUMER, 1, 60)
        [row] = receipt.rows
        done = Settle(event, receipt.id_of(row), row[POSITION], receipt.token, None, delay_seconds=0)
        self.engine.settle(QUEUE, receipt.group, [done])

    def send(self, **options: object) -> None:
        self.engine.send(QUEUE, [(b"2", None, Options(**options))])  # type: ignore[arg-type]

    def send_as_caller(self) -> None:
        connection = own_connection(self.url)
        self.engine.send(QUEUE, ONE, connection)
        connection.commit()
        connection.close()

    def calls(self) -> ShortCalls:
        """As of a process that has made no call yet."""
        return ShortCalls(self.engine.database)


@pytest.fixture
def scene(url: str) -> Iterator[Scene]:
    made = Scene(url)
    yield made
    made.engine.close()


def test_a_plain_send_receive_and_ack_take_one_packet_each(scene: Scene) -> None:
    calls = scene.calls()
    ids = calls.send(QUEUE, ONE * 3)
    assert ids is not None
    receipt = calls.receive(QUEUE, None, CONSUMER, 3, None)
    assert receipt is not None
    assert [receipt.id_of(row) for row in receipt.rows] == ids
    positions = [row[POSITION] for row in receipt.rows]
    assert calls.ack(QUEUE, receipt.group, [(receipt.token, positions[0], positions[-1])])
    assert not scene.calls().ack(QUEUE, receipt.group, [(receipt.token, positions[0], positions[-1])])
    empty = calls.receive(QUEUE, None, CONSUMER, 3, None)
    assert empty is not None
    assert empty.rows == []
    stats = scene.engine.stats(QUEUE)["default"]
    assert (stats.done, stats.in_progress, stats.available) == (4, 0, 0)
    assert [entry.event for entry in scene.engine.audit(QUEUE, ids[1])] == ["send", "receive", "ack"]


def test_an_ack_takes_parts_of_several_leases(scene: Scene) -> None:
    """What is left of a lease stays leased under its token, and every part has an audit entry of its own."""
    calls = scene.calls()
    ids = scene.engine.send(QUEUE, ONE * 8)
    one, two = (scene.engine.receive(QUEUE, None, CONSUMER, 4, None) for _ in range(2))
    places = [row[POSITION] for row in (*one.rows, *two.rows)]
    ranges = [(one.token, places[1], places[2]), (two.token, places[4], places[4]), (two.token, places[7], places[7])]
    assert calls.ack(QUEUE, one.group, ranges)
    assert scene.engine.stats(QUEUE)["default"].done == 1 + 4
    left = scene.engine.leases(QUEUE, one.group)
    assert [(lease.id, lease.token) for lease in left] == [
        (ids[0], one.token), (ids[3], one.token), (ids[5], two.token), (ids[6], two.token)
    ]  # fmt: skip
    for place in (1, 2, 4, 7):
        assert [entry.event for entry in scene.engine.audit(QUEUE, ids[place])] == ["send", "receive", "ack"]
    assert calls.ack(QUEUE, one.group, [(one.token, places[0], places[0]), (one.token, places[3], places[3])])
    assert calls.ack(QUEUE, one.group, [(two.token, places[5], places[6])])
    assert scene.engine.leases(QUEUE, one.group) == []


def test_an_ack_with_a_part_that_is_not_leased_changes_nothing(scene: Scene) -> None:
    scene.engine.send(QUEUE, ONE * 4)
    one, two = (scene.engine.receive(QUEUE, None, CONSUMER, 2, None) for _ in range(2))
    (first, last), (third, fourth) = ([row[POSITION] for row in receipt.rows] for receipt in (one, two))
    for wrong in [(one.token, third, fourth), (two.token, last, third), (two.token + 9, third, third)]:
        assert not scene.calls().ack(QUEUE, one.group, [(one.token, first, last), wrong])
    entries = scene.engine.stats(QUEUE)["default"]
    assert (entries.done, entries.in_progress) == (1, 4)
    scene.clock.advance(seconds=61)
    assert not scene.calls().ack(QUEUE, one.group, [(one.token, first, last)])


def test_receives_of_one_consumer_are_one_receive(scene: Scene) -> None:
    ids = scene.engine.send(QUEUE, ONE * 5)
    receipts = scene.engine.receive_each(QUEUE, None, [(CONSUMER, 2)] * 4, None)
    assert [receipt.ids() for receipt in receipts] == [ids[:2], ids[2:4], ids[4:], []]
    assert len({receipt.token for receipt in receipts}) == 1
    assert scene.engine.ack_all(QUEUE, "default", receipts[1].token, [row[POSITION] for row in receipts[1].rows])
    assert [lease.id for lease in scene.engine.leases(QUEUE, "default")] == [*ids[:2], ids[4]]


@pytest.mark.parametrize("is_undone", [False, True])
def test_calls_that_commit_together_are_parts_of_one_transaction(scene: Scene, url: str, is_undone: bool) -> None:
    """Also when one of them has to be made the other way: the last send has a priority."""
    engine = scene.engine
    engine.send(QUEUE, ONE * 2)
    receipt = engine.receive(QUEUE, None, CONSUMER, 2, None)
    positions = [row[POSITION] for row in receipt.rows]
    seen: list[int] = []
    waiting: list[str] = []

    def look() -> None:
        with penstock.connect(url) as other:
            stats = other.queue(QUEUE).stats("default")
        seen.append(stats.done)
        if is_undone:
            raise penstock.StoreUnavailable("the transaction is undone")

    calls = [
        lambda: engine.ack_all(QUEUE, receipt.group, receipt.token, positions),
        lambda: engine.send(QUEUE, ONE),
        lambda: engine.receive(QUEUE, None, CONSUMER, 10, None),
        lambda: engine.send(QUEUE, [(b"2", None, Options(priority=3))]),
        lambda: engine.send(QUEUE, ONE),
        look,
    ]
    if is_undone:
        with pytest.raises(penstock.StoreUnavailable):
            engine.together(calls)
    else:
        acked, [sent], taken, [late], [last], _ = engine.together(calls)
        assert acked
        assert taken.ids() == [sent]
        waiting += [last, late]
    stats = engine.stats(QUEUE)["default"]
    assert seen == [1]
    assert (stats.done, stats.in_progress, stats.available) == ((1, 2, 0) if is_undone else (3, 1, 2))
    assert engine.receive(QUEUE, None, CONSUMER, 10, None).ids() == waiting


def _nak(scene: Scene) -> None:
    scene.engine.send(QUEUE, ONE)
    scene.settle(Event.NAK)


def _delayed(scene: Scene) -> None:
    scene.send(delay_seconds=5)
    scene.clock.advance(seconds=6)


def _lapsed(scene: Scene) -> None:
    scene.engine.send(QUEUE, ONE)
    scene.engine.receive(QUEUE, None, CONSUMER, 1, 5)
    scene.clock.advance(seconds=6)


def _two_lanes(scene: Scene) -> None:
    scene.send(priority=5)
    scene.engine.receive(QUEUE, None, CONSUMER, 1, 5000)
    scene.send(priority=5)
    scene.engine.send(QUEUE, ONE)


CASES: dict[str, tuple[Callable[[Scene], object], int]] = {
    "a retry is ready": (_nak, 1),
    "a delayed message is due": (_delayed, 1),
    "a lease has lapsed": (_lapsed, 1),
    "messages of two lanes": (_two_lanes, 2),
    "a lane that was never read": (lambda scene: scene.send(priority=5), 1),
    "a time to live": (lambda scene: scene.send(ttl_seconds=60), 1),
    "a send of a caller": (lambda scene: scene.send_as_caller(), 1),
    "a paused queue": (lambda scene: scene.engine.declare(QUEUE, {"paused": True}), 0),
    "an ordered queue": (lambda scene: scene.engine.declare(QUEUE, {"ordered": True}), 0),
    "a group that has not been used for a while": (lambda scene: scene.clock.advance(seconds=11), 0),
}


@pytest.mark.parametrize("case", CASES)
def test_a_receive_with_more_to_do_is_made_the_other_way(scene: Scene, case: str) -> None:
    prepare, count = CASES[case]
    prepare(scene)
    assert scene.calls().receive(QUEUE, None, CONSUMER, 10, None) is None
    assert len(scene.engine.receive(QUEUE, None, CONSUMER, 10, None).rows) == count


def test_a_policy_that_another_client_has_changed_counts_from_the_next_call_on(url: str, scene: Scene) -> None:
    calls = scene.calls()
    assert calls.send(QUEUE, ONE) is not None
    with penstock.connect(url) as other:
        other.queue(QUEUE, max_payload_bytes=1, lease_seconds=7)
    assert calls.send(QUEUE, ONE) is None
    assert scene.calls().receive(QUEUE, None, CONSUMER, 1, None) is not None
    [lease] = scene.engine.leases(QUEUE, "default")
    assert (lease.ends_at - scene.clock.now).total_seconds() == 7
    with pytest.raises(penstock.PayloadTooLarge):
        scene.engine.send(QUEUE, [(b"22", None, PLAIN)])


def test_a_limit_that_another_client_has_raised_counts_from_the_next_send_on(url: str, scene: Scene) -> None:
    with penstock.connect(url) as other:
        other.queue(QUEUE, max_payload_bytes=1)
        calls = scene.calls()
        assert calls.send(QUEUE, ONE) is not None
        other.queue(QUEUE, max_payload_bytes=2)
    assert calls.send(QUEUE, [(b"22", None, PLAIN)]) is None
    assert scene.engine.send(QUEUE, [(b"22", None, PLAIN)])


def test_the_name_of_a_consumer_need_not_fit_the_character_set_of_the_database(url: str, scene: Scene) -> None:
    admin = own_connection(url, autocommit=True)
    with admin.cursor() as cursor:
        cursor.execute("alter database character set latin1")
    admin.close()
    scene.engine.send(QUEUE, ONE)
    receipt = scene.engine.receive(QUEUE, None, "пресс ☃", 1, 60)
    position = receipt.rows[0][POSITION]
    assert scene.calls().ack(QUEUE, receipt.group, [(receipt.token, position, position)])
    assert scene.engine.audit(QUEUE, receipt.id_of(receipt.rows[0]))[-1].by == "пресс ☃"


def test_a_read_shows_a_receive_that_has_returned_before_its_commit(url: str, scene: Scene) -> None:
    scene.engine.send(QUEUE, ONE)
    scene.engine.stats(QUEUE)
    admin = own_connection(url, autocommit=True)
    with admin.cursor() as cursor, ThreadPoolExecutor(1) as pool:
        for stage in ("start", "flush", "block_ddl", "block_commit"):
            cursor.execute(f"backup stage {stage}")
        receipt = scene.calls().receive(QUEUE, None, CONSUMER, 1, 60)
        stats = pool.submit(scene.engine.stats, QUEUE)
        # Time for a read that does not wait.
        wait([stats], timeout=0.3)
        cursor.execute("backup stage end")
        assert receipt is not None
        assert stats.result(60)[receipt.group].in_progress == len(receipt.rows) == 1
    admin.close()


def test_a_queue_that_another_client_has_made_anew_gets_the_message(url: str, scene: Scene) -> None:
    with penstock.connect(url) as other:
        other.queue(QUEUE).delete()
        [sent] = scene.engine.send(QUEUE, ONE)
        [received] = other.queue(QUEUE).receive(limit=10)
        assert received.id == sent


def test_a_send_after_a_flush_by_another_client_is_delivered(url: str, scene: Scene) -> None:
    """The flush removes the lanes, which the sender remembers."""
    scene.send()
    with penstock.connect(url) as other:
        assert other.queue(QUEUE).flush() == 2
        scene.engine.send(QUEUE, [(b"after", None, PLAIN)])
        assert [delivery.payload for delivery in other.queue(QUEUE).receive(limit=10)] == [b"after"]


def test_one_connection_is_enough(url: str) -> None:
    with penstock.connect(url, pool_size=1) as store:
        queue = store.queue(QUEUE)
        for number in range(20):
            queue.send(b"%d" % number)
            [delivery] = queue.receive()
            delivery.ack()
        assert queue.stats(group="default").done == 20


def test_a_connection_that_ends_after_a_receive_is_replaced(url: str, scene: Scene) -> None:
    """The receive has not read the answer to its commit yet."""
    scene.engine.send(QUEUE, ONE * 2)
    admin = own_connection(url, autocommit=True)
    for _ in range(2):
        receipt = scene.engine.receive(QUEUE, None, CONSUMER, 1, 60)
        with admin.cursor() as cursor:
            _await_lease(cursor, receipt.token)
            cursor.execute(
                "select id from information_schema.processlist where db = database() and id <> connection_id()"
            )
            for (number,) in cursor.fetchall():
                cursor.execute(f"kill {number}")
        positions = [row[POSITION] for row in receipt.rows]
        assert scene.engine.ack_all(QUEUE, receipt.group, receipt.token, positions)
    admin.close()


def _await_lease(cursor: Cursor, token: int) -> None:
    """The commit of the receive, which a killed connection would not make."""
    ends = time.monotonic() + 60
    while not cursor.execute("select 1 from penstock_lease where token = %s", (token,)):
        assert time.monotonic() < ends, "the receive was not committed"
