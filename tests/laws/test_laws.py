"""The laws of the design, one short test or two each, on the real engine. Law 10 and law 13 have files of their own.

The long versions are in tests/conformance (every verb), tests/model (any order) and tests/faults (real processes).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

import penstock
from penstock import Ack, InvalidInput, LeaseLost, Nak, PenstockError, Queue, State, Store
from penstock.domain.lifecycle import is_legal
from tests.conformance.engines import ENGINES, MARIADB, EngineRow
from tests.engines.mariadb.server import own_connection as own_mariadb_connection


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 1_800_000_000_000_000

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += round(seconds * 1_000_000)

    def time(self) -> datetime:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.now)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=(*ENGINES, MARIADB), ids=lambda row: row.name)
def engine_row(request: pytest.FixtureRequest) -> EngineRow:
    row: EngineRow = request.param
    return row


@pytest.fixture
def url(engine_row: EngineRow, tmp_path: Path) -> str:
    return engine_row.fresh_url(tmp_path)


@pytest.fixture
def store(engine_row: EngineRow, url: str, clock: Clock) -> Iterator[Store]:
    with penstock.connect(url, clock=clock, **engine_row.settings(url)) as store:
        yield store


@pytest.fixture
def queue(store: Store) -> Queue:
    return store.queue("orders", max_retries=2, backoff_jitter_seconds=0)


def own_connection(url: str) -> Any:
    """A separate connection to the store's database."""
    if url.startswith("sqlite"):
        return apsw.Connection(url.removeprefix("sqlite:///"))
    if url.startswith("mysql"):
        return own_mariadb_connection(url)
    return psycopg.connect(url, autocommit=True)


def conserved(queue: Queue, sent: int) -> bool:
    """Check law 7 at the end of a test."""
    return all(
        stats.held + stats.available + stats.redo + stats.in_progress + sum(stats.outcomes.values()) == sent
        for stats in queue.stats().values()
    )


# -- law 1: a send that returned is never lost -------------------------------------------------------------------------


def test_law_1_a_message_is_found_in_every_state_it_can_be_in(queue: Queue, clock: Clock) -> None:
    ids = queue.send_many([b"succeeds", b"is rejected", b"is leased", b"waits"])
    held = queue.send(b"is held", delay_seconds=60)
    first, second, _ = queue.receive(limit=3)
    first.ack()
    second.reject("no")
    states = [queue.explain(one).state for one in [*ids, held]]
    assert states == ["succeeded", "rejected", "leased", "ready", "held"]
    assert [queue.find(one).payload for one in [*ids, held]][-1] == b"is held"
    assert conserved(queue, 5)


def test_law_1_a_send_survives_closing_the_store(url: str, queue: Queue, store: Store) -> None:
    message_id = queue.send(b"kept")
    store.close()
    with penstock.connect(url) as again:
        assert [one.id for one in again.queue("orders").receive()] == [message_id]


# -- law 2: nothing is delivered that was not sent ---------------------------------------------------------------------


def test_law_2_a_rolled_back_send_is_never_seen(queue: Queue, url: str) -> None:
    connection = own_connection(url)
    run = connection.query if url.startswith("mysql") else connection.execute
    run("begin")
    message_id = queue.send(b"ghost", transaction=connection)
    run("rollback")
    assert queue.receive() == []
    with pytest.raises(penstock.NotFound):
        queue.find(message_id)
    run("begin")
    queue.send(b"real", transaction=connection)
    run("commit")
    connection.close()
    assert [one.payload for one in queue.receive(limit=10)] == [b"real"]
    assert conserved(queue, 1)


# -- law 3: one live lease, and stale tokens change nothing ------------------------------------------------------------


def test_law_3_a_leased_message_is_handed_to_nobody_else(queue: Queue) -> None:
    queue.send(b"x")
    assert len(queue.receive()) == 1
    assert queue.receive(limit=10) == []


def test_law_3_a_stale_token_changes_nothing(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(b"x")
    stale = queue.receive()[0]
    clock.advance(31)
    current = queue.receive()[0]
    before = queue.audit(message_id)
    for act in (stale.ack, stale.nak, stale.reject, stale.reschedule, lambda: stale.extend(60)):
        with pytest.raises(LeaseLost):
            act()
    assert queue.audit(message_id) == before
    assert current.token > stale.token
    current.ack()
    assert conserved(queue, 1)


def test_law_3_the_same_settle_again_is_harmless(queue: Queue) -> None:
    message_id = queue.send(b"x")
    delivery = queue.receive()[0]
    delivery.ack()
    before = queue.audit(message_id)
    delivery.ack()
    assert queue.settle([Ack(delivery), Nak(delivery, "no")])[1].ok is False
    assert queue.audit(message_id) == before
    assert queue.stats("default").done == 1


# -- law 4: never early, never late ------------------------------------------------------------------------------------


def test_law_4_a_message_is_never_early_and_never_late(queue: Queue, clock: Clock) -> None:
    queue.send(b"x", delay_seconds=10, ttl_seconds=20)
    clock.advance(9.999999)
    assert queue.receive() == []
    clock.advance(0.000001)
    delivery = queue.receive(lease_seconds=3)[0]
    delivery.nak("again", delay_seconds=0)
    clock.advance(10)
    assert queue.receive() == []
    assert queue.dead_letters()[0].outcome == "expired"
    assert conserved(queue, 1)


# -- law 5: attempts have no gaps, then exactly one dead letter --------------------------------------------------------


def test_law_5_attempts_have_no_gaps_and_end_in_one_dead_letter(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(b"poison")
    attempts = []
    for number in range(5):
        for delivery in queue.receive():
            attempts.append(delivery.attempt)
            delivery.nak(f"failure {number + 1}", delay_seconds=0)
        clock.advance(1)
    assert attempts == [1, 2, 3]
    letter = queue.dead_letters()[0]
    assert (letter.id, letter.outcome, letter.reason, letter.attempts) == (message_id, "failed", "failure 3", 3)
    assert len(queue.dead_letters()) == 1
    assert conserved(queue, 1)


# -- law 6: at most once -----------------------------------------------------------------------------------------------


def test_law_6_at_most_once_comes_back_only_after_a_nak(store: Store, clock: Clock) -> None:
    queue = store.queue("once", delivery="at_most_once", max_retries=5)
    queue.send_many([b"nakked", b"forgotten"])
    first, _ = queue.receive(limit=2)
    first.nak("try again", delay_seconds=0)
    assert [one.payload for one in queue.receive(limit=10)] == [b"nakked"]
    clock.advance(3600)
    assert queue.receive(limit=10) == []
    assert {one.payload: one.outcome for one in queue.dead_letters()} == {
        b"nakked": State.LEASE_EXPIRED,
        b"forgotten": State.LEASE_EXPIRED,
    }
    assert conserved(queue, 2)


# -- law 7: everything adds up -----------------------------------------------------------------------------------------


def test_law_7_counts_conserve_and_trails_are_legal(store: Store, queue: Queue, clock: Clock) -> None:
    ids = queue.send_many([f"{number}".encode() for number in range(12)])
    ids.append(queue.send(b"late", ttl_seconds=5))
    ids.append(queue.send(b"held", delay_seconds=9999))
    batch = queue.batch("b")
    ids.append(batch.send(b"cancelled"))
    batch.cancel()
    deliveries = queue.receive(limit=10)
    queue.receive(limit=3, group="other")
    for number, delivery in enumerate(deliveries):
        settle = [delivery.ack, delivery.nak, delivery.reject, delivery.reschedule, None][number % 5]
        if settle is not None:
            settle()
        assert conserved(queue, len(ids))
    clock.advance(60)
    store.sweep()
    assert conserved(queue, len(ids))
    assert queue.stats("default").outcomes["expired"] == 1
    for message_id in ids:
        assert_legal(queue, message_id, "default")
        assert_legal(queue, message_id, "other")


def assert_legal(queue: Queue, message_id: str, group: str) -> None:
    state, last, ended = None, None, 0
    for entry in queue.audit(message_id):
        if entry.group in (None, group):
            assert is_legal(state, entry.event, entry.state), f"{state} {entry}"
            assert last is None or entry.at >= last
            state, last = entry.state, entry.at
            ended += entry.state not in ("held", "ready", "leased")
    assert ended <= 1
    if group == "default":
        assert queue.explain(message_id).state == state


# -- law 9: exactly once -----------------------------------------------------------------------------------------------


def test_law_9_end_and_abort_messages_come_exactly_once(store: Store, queue: Queue, clock: Clock) -> None:
    for name, last_step in (("finishes", "ack"), ("is cancelled", "nak")):
        batch = queue.batch(name)
        batch.set_end(b"end")
        batch.set_abort(b"abort")
        batch.send_many([b"1", b"2"])
        batch.start()
        one, two = queue.receive(limit=10)
        one.ack()
        if last_step == "nak":
            batch.cancel()
        assert queue.receive(limit=10) == []
        two.ack() if last_step == "ack" else two.nak("cancelled meanwhile")
        batch.start(), batch.cancel(), store.sweep()
        last = queue.receive(limit=10)
        assert [one.payload for one in last] == [b"end" if last_step == "ack" else b"abort"]
        queue.ack_many(last)
    assert conserved(queue, 6)


def test_law_9_a_tick_is_sent_once_however_many_sweep(url: str, store: Store, clock: Clock) -> None:
    store.schedule("minutely", "* * * * *", "ticks", b"tick", catch_up="all")
    with penstock.connect(url, clock=clock) as second:
        for _ in range(3):
            clock.advance(120)
            store.sweep(), second.sweep(), store.sweep()
    assert len(store.queue("ticks").receive(limit=100)) == 6


# -- law 12: bad input changes nothing, and the error names it ---------------------------------------------------------

BAD: list[tuple[str, Any]] = [
    ("lease_secnods", lambda store: store.queue("orders", lease_secnods=3)),
    ("-1", lambda store: store.queue("orders", max_retries=-1)),
    ("sometimes", lambda store: store.queue("orders", delivery="sometimes")),
    ("nan", lambda store: store.queue("orders").send(b"x", delay_seconds=float("nan"))),
    ("101", lambda store: store.queue("small").send(bytes(101))),
    ("payload", lambda store: store.queue("orders").send(object())),
    ("name", lambda store: store.queue("a\nb")),
    ("256", lambda store: store.queue("x" * 256)),
    ("empty", lambda store: store.queue("")),
    ("99 * * * *", lambda store: store.schedule("s", "99 * * * *", "orders", b"x")),
    ("Mars/Olympus", lambda store: store.schedule("s", "* * * * *", "orders", b"x", timezone="Mars/Olympus")),
    ("not-a-uuid", lambda store: store.queue("orders").send(b"x", id="not-a-uuid")),
    ("time zone", lambda store: store.queue("orders").send(b"x", deadline_at=datetime(2030, 1, 1))),
    ("priority", lambda store: store.queue("orders").send(b"x", priority=-1)),
    ("limit", lambda store: store.queue("orders").receive(limit=0)),
    ("succeded", lambda store: store.queue("orders").dead_letters(outcome="succeded")),
    ("middle", lambda store: store.queue("orders").seek("default", "middle")),
    ("101", lambda store: store.queue("small").send_many([b"fine", bytes(101)])),
    ("headers", lambda store: store.queue("orders").send(b"x", headers={"a": 1})),
]


@pytest.mark.parametrize(("named", "call"), BAD, ids=[f"{number}-{named}" for number, (named, _) in enumerate(BAD)])
def test_law_12_bad_input_is_named_and_changes_nothing(store: Store, queue: Queue, named: str, call: Any) -> None:
    store.queue("small", max_payload_bytes=100)
    queue.send(b"before")
    before = everything(store)
    with pytest.raises(InvalidInput) as error:
        call(store)
    if named == "name":
        named = "control character"
    assert named in str(error.value)
    assert everything(store) == before


def everything(store: Store) -> object:
    names = [info.name for info in store.queues()]
    return store.queues(), store.schedules(), [(name, store.queue(name).stats()) for name in names]


def test_law_12_json_is_required_where_it_is_asked_for(queue: Queue) -> None:
    queue.send(b"{not json")
    delivery = queue.receive()[0]
    with pytest.raises(PenstockError, match="not json"):
        delivery.json()
    delivery.ack()
