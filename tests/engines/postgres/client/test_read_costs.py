"""Reads of a long queue touch a few blocks, not the log. No table was ever analysed, as in a new store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg
import pytest

import penstock
from tests.engines.postgres.server import fresh_database

# Enough that a planner without statistics would search a position in every transaction of a lane.
SENDS, EACH, FINISHED = 400, 100, 4_000
# In another queue, delayed until the same moment; and in a batch.
HELD = 4_000
# Sent to another queue since.
BEHIND = 20_000
# Of several thousand that the log alone has.
MOST_BLOCKS = 300
LOOKS = {
    "counts": "select * from penstock.stats('long')",
    "how many there are": "select penstock.message_count('long')",
    "what comes next": "select * from penstock.next_messages('long', 'default', 1)",
    "the newest messages": "select * from penstock.browse('long', 0, null, 5, true)",
    "the oldest messages": "select * from penstock.browse('long', 0, null, 5, false)",
    "messages of a short queue": "select * from penstock.browse('short', 0, null, 5, true)",
    "the newest that ended": "select * from penstock.ended_messages('long', 'default', null, 5, null)",
    "those that ended before": "select * from penstock.ended_messages('long', 'default', 'succeeded', 5, {middle})",
    "one message": "select * from penstock.find('long', '{waiting}')",
    "the trail of one message": "select * from penstock.list_audit('long', '{waiting}')",
    "the states of a few": "select * from penstock.states('long', 'default', '{{{waiting},{ended}}}')",
    "what is in flight": "select * from penstock.leases('long', 'other', null, null, 0, 5)",
    "the lease of one message": "select * from penstock.leases('long', 'other', '{{{ended}}}', null, 0, 5)",
    "what is ready": "select * from penstock.ready_messages('long', 'default', 5, 0, 0, 0, 0)",
    "what is ready far behind": (
        "select one.* from penstock.log as l, penstock.ready_messages("
        "'long', 'default', 5, 0, 1, l.tx::text::bigint, l.position) as one where l.position = {last} - 10"
    ),
    "what is delayed": "select * from penstock.due_messages('held', 'default', 5, 0, 0, 0)",
    "what is delayed until the same moment": (
        "select one.* from penstock.held as h,"
        " penstock.due_messages('held', 'default', 5, h.available_at, 0, h.held_id) as one where h.held_id = 2000"
    ),
    "what waits for a batch": "select * from penstock.waiting_messages('held', 5, 0, 0)",
    "members of a batch": "select * from penstock.batch_members('held', 'many', null, 5, 1, 4000)",
    "members of a batch in the log": "select * from penstock.batch_members('held', 'begun', null, 5, 0, 0)",
    "the newest dead letters": "select * from penstock.list_dead_letters('long', null, null, 5)",
}


class Filled(NamedTuple):
    connection: psycopg.Connection[Any]
    middle: int
    """The position of a message that has ended, with others before it."""
    ended: str
    """The first message, which another group has in flight."""
    waiting: str
    """A message that nobody has received."""
    last: int
    """The position of the last one."""


@pytest.fixture(scope="module")
def filled() -> Iterator[Filled]:
    # A fresh database: indexes of used ones still point to removed rows.
    url = fresh_database()
    with penstock.connect(url) as store:
        short, long = store.queue("short"), store.queue("long")
        short.send_many([b"x"] * 5)
        finished = long.send_many([b"x" * 400] * FINISHED)
        middle = store.engine.position(long.name, finished[2_000])
        # In flight until the end of the module, however slow the machine is.
        long.receive(limit=10, group="other", lease_seconds=3600)
        long.ack_many(long.receive(limit=FINISHED - 500))
        long.settle([penstock.Reject(one, f"error {one.position}") for one in long.receive(limit=500)])
        for _ in range(SENDS):
            long.send_many([b"x" * 400] * EACH)
        last = store.engine.last_position(long.name)
        held = store.queue("held")
        held.send_many([penstock.Outgoing(payload=b"x", delay_seconds=5000)] * HELD)
        held.batch("many").send_many([b"x"] * HELD)
        begun = held.batch("begun")
        begun.send_many([b"x"] * 100)
        begun.start()
        store.sweep()
        store.queue("behind").send_many([b"x"] * BEHIND)
        with psycopg.connect(url, autocommit=True) as connection:
            # As after a while in which others were at work.
            connection.execute("delete from penstock.decided_position")
            yield Filled(connection, middle, finished[0], long.peek(1)[0].id, last)


@pytest.mark.parametrize("look", LOOKS)
def test_a_look_reads_few_blocks(filled: Filled, look: str) -> None:
    assert_reads_few_blocks(filled, look)


def assert_reads_few_blocks(filled: Filled, look: str) -> None:
    statement = f"explain (analyze, buffers, timing off, format json) {LOOKS[look].format(**filled._asdict())}"
    filled.connection.execute(statement)  # reads that happen once per connection are not counted
    row = filled.connection.execute(statement).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    assert plan["Actual Rows"] > 0
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < MOST_BLOCKS


def test_what_others_did_is_looked_at_once(filled: Filled) -> None:
    """Audit entries that are counted again by each read, in a group in which nothing has ended."""
    row = filled.connection.execute(
        "select count(s.entry) from penstock.group as g join penstock.audit as s using (queue_id)"
        " where g.name = 'other' and s.tx >= pg_snapshot_xmax(g.counted)"
    ).fetchone()
    assert row is not None
    assert row[0] <= 100


@pytest.mark.parametrize("look", LOOKS)
def test_statistics_do_not_make_a_look_read_the_log(filled: Filled, look: str) -> None:
    """Last in the module: autovacuum analyses tables in a store that has run for a while."""
    filled.connection.execute("analyze")
    assert_reads_few_blocks(filled, look)
