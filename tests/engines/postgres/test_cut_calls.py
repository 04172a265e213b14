"""Calls that are cut short: by a connection that goes away in the middle, by a time limit, by a deadlock. Each is done
wholly or not at all, and says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import penstock
from penstock import Ack, Delivery, Nak, Queue, Reject, Reschedule, Store, StoreUnavailable
from tests.engines.postgres.fixtures import Begin, waiting

Call = Callable[[Queue, list[Delivery]], Any]


def prepare(queue: Queue) -> list[Delivery]:
    """Something in every state: unread, in flight, waiting, dead, held, in a batch. Gives back what is in flight."""
    queue.send_many([b"dead", b"again", b"1", b"2", b"3"])
    dead, again = queue.receive(limit=2)
    dead.reject("bad")
    again.nak("busy", delay_seconds=3600)
    leased = queue.receive(limit=2)
    queue.send(b"held", delay_seconds=3600)
    batch = queue.batch("nightly")
    batch.send(b"member")
    queue.receive(group="lapsed", limit=3, lease_seconds=0.001)
    return leased


# A verb, and the table at which it has to wait when most of its work is done.
CALLS: dict[str, tuple[str, Call]] = {
    "send": ("log", lambda queue, leased: queue.send(b"new")),
    "send with options": ("address", lambda queue, leased: queue.send(b"new", address="desk", id=OWN_ID)),
    "receive": ("lease", lambda queue, leased: queue.receive(limit=1)),
    "ack_many": ("audit", lambda queue, leased: queue.ack_many(leased)),
    "ack": ("audit", lambda queue, leased: queue.settle([Ack(leased[0])])),
    "nak": ("tracked", lambda queue, leased: queue.settle([Nak(leased[0], "why", 5)])),
    "reject": ("dead_letter", lambda queue, leased: queue.settle([Reject(leased[0], "why")])),
    "reschedule": ("tracked", lambda queue, leased: queue.settle([Reschedule(leased[0], 5)])),
    "extend": ("lease", lambda queue, leased: leased[0].extend(600)),
    "start of a batch": ("audit", lambda queue, leased: queue.batch("nightly").start()),
    "cancel of a batch": ("dead_letter", lambda queue, leased: queue.batch("nightly").cancel()),
    "redrive": ("tracked", lambda queue, leased: queue.redrive()),
    "purge": ("dead_letter", lambda queue, leased: queue.purge()),
    "seek": ("cursor", lambda queue, leased: queue.seek("default", "start")),
    "flush": ("address", lambda queue, leased: queue.flush()),
    "remove": ("identity", lambda queue, leased: queue.remove([message.id for message in queue.peek(1)])),
    "trim": ("finished", lambda queue, leased: queue.trim(keep=1)),
    "sweep": ("tracked", lambda queue, leased: queue.engine.sweep()),
    "declare": ("queue", lambda queue, leased: queue.engine.declare(queue.name, {"max_retries": 5})),
    "register": ("consumer", lambda queue, leased: queue.register("one")),
    "schedule": ("schedule", lambda queue, leased: queue.store.schedule("hourly", "0 * * * *", queue.name, b"tick")),
}
OWN_ID = "0b8d1a52-6f43-4c1e-9a57-3d2f1e0c9b8a"


# How a call is cut, and what is said of it. A statement_timeout cancels too, but would count a busy machine's time.
CUTS = {
    "the connection is ended": ("pg_terminate_backend(%s, 5000)", "ended the connection"),
    "the call is canceled": ("pg_cancel_backend(%s)", "nothing was changed"),
}


@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("verb", CALLS)
def test_a_call_that_is_cut_in_the_middle_leaves_nothing_and_can_be_made_again(
    queue: Queue, verb: str, how: str, begin: Begin, other: psycopg.Connection, watcher: psycopg.Connection
) -> None:
    table, call = CALLS[verb]
    cut, said = CUTS[how]
    leased = prepare(queue)
    before = state(watcher)
    other.execute(f"lock table penstock.{table} in share row exclusive mode")
    begun = begin(lambda: call(queue, leased))
    [pid] = waiting(watcher)
    watcher.execute(f"select {cut}", [pid])
    with pytest.raises(StoreUnavailable, match=said):
        begun.result(60)
    other.rollback()
    assert state(watcher) == before
    call(queue, leased)
    assert state(watcher) != before


def state(watcher: psycopg.Connection) -> dict[str, Any]:
    """Every row of every table, but for when somebody last looked."""
    tables = watcher.execute(
        "select c.relname from pg_class as c where c.relnamespace = 'penstock'::regnamespace "
        "and c.relkind in ('r', 'p') and not c.relispartition and c.relname <> 'decided_position'"
    ).fetchall()
    query = (
        "select coalesce(jsonb_agg(to_jsonb(t) - 'used_at' - 'counted' order by t::text), '[]') from penstock.{} as t"
    )
    found = {}
    for (table,) in tables:
        row = watcher.execute(query.format(table)).fetchone()
        assert row is not None
        found[table] = row[0]
    return found


def test_a_call_does_not_wait_for_batches_that_others_have_locked(store: Store, other: psycopg.Connection) -> None:
    """So it cannot be part of a deadlock there; the next sweep ends the batches."""
    queue = store.queue("orders")
    for name in "bca":
        queue.batch(name).set_end(f"end of {name}".encode())
        queue.batch(name).send(name.encode())
        queue.batch(name).start()
    deliveries = queue.receive(limit=3)
    assert [delivery.payload for delivery in deliveries] == [b"b", b"c", b"a"]
    other.execute("select 1 from penstock.batch where name in ('a', 'c') for update")
    settled = queue.settle([Reject(one, "x") for one in deliveries])
    assert [one.state for one in settled] == ["rejected"] * 3
    other.rollback()
    store.sweep()
    assert [batch.state for batch in queue.batches()] == ["finished"] * 3
    assert len(queue.receive(limit=10)) == 3


def test_what_is_refused_in_a_read_only_transaction_is_named(postgres_url: str, store: Store) -> None:
    store.queue("orders").send(b"1")
    with psycopg.connect(postgres_url) as connection:
        connection.read_only = True
        with pytest.raises(penstock.StoreReadOnly, match="read-only"):
            store.queue("orders").send(b"2", transaction=connection)
        connection.rollback()
    assert store.queue("orders").stats("default").available == 1
