"""The SQL functions decide as `penstock.domain.settlement` does, on every combination of the inputs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import psycopg
import pytest

from penstock.domain.lifecycle import LIVE, Event
from penstock.domain.policy import Delivery, Policy
from penstock.domain.settlement import Attempt, Decision, decide, is_held, lease_end
from tests.engines.postgres.fixtures import postgres_url

__all__ = ["postgres_url"]

NOW = 1_800_000_000_000_000
RANDOM = 0.5
EVENTS = (Event.ACK, Event.NAK, Event.REJECT, Event.RESCHEDULE, Event.RELEASE, Event.LEASE_END)
# None, passed, passing now, ahead.
TIMES = (None, NOW - 1, NOW, NOW + 1_000_000)
DELAYS = (None, -1.0, 0.0, 0.0000004, 2.5)
BATCHES = {None: False, 1: False, 2: True, 3: True}
BATCH_STATES = {1: "running", 2: "cancelling", 3: "cancelled"}


class Vector(NamedTuple):
    number: int
    event: Event
    delivery: Delivery
    attempt: int
    max_retries: int | None
    deadline_at: int | None
    expires_at: int | None
    batch_id: int | None
    delay: float | None

    @property
    def policy(self) -> Policy:
        return Policy(delivery=self.delivery, max_retries=self.max_retries)

    @property
    def leased(self) -> Attempt:
        return Attempt(self.attempt, self.expires_at, self.deadline_at, BATCHES[self.batch_id])

    def decision(self) -> Decision:
        return decide(self.event, self.leased, self.policy, NOW, lambda: RANDOM, self.delay)


def vectors() -> list[Vector]:
    deliveries: tuple[Delivery, ...] = ("at_least_once", "at_most_once")
    values = product(EVENTS, deliveries, (1, 2, 8), (None, 0, 1, 7), TIMES, TIMES, BATCHES, DELAYS)
    return [
        Vector(number, *value)
        for number, value in enumerate(values, 1)
        if value[-1] is None or value[0] in (Event.NAK, Event.RESCHEDULE)
    ]


# A table of the vectors, a queue and a group of the store, and batches in each state.
PREPARE = """
    update penstock.store set injected_clock = true;
    select set_config('penstock.random', '{random}', false), set_config('penstock.notify', 'off', false);
    select penstock.prepare('orders');
    select count(*) from penstock.receive('orders');
    set client_min_messages = error;
    create temporary table vector (
        number bigint, event text, delivery text, attempt integer, max_retries integer, deadline_at bigint,
        expires_at bigint, batch_id bigint, delay double precision
    )
"""
LEASED = """
    (jsonb_populate_record(null::penstock.message_row, to_jsonb(v) || jsonb_build_object(
        'position', v.number, 'lane_id', 1, 'priority', 0, 'token', 1, 'consumer', 'c', 'created_at', 1, 'payload', ''
    )))
"""
APPLY = f"""
    select v.number, penstock._apply_event(
        jsonb_populate_record(q, to_jsonb(v) - 'deadline_at'), g, {LEASED}, v.event, null, v.delay, %s
    )
    from vector as v, penstock.queue as q, penstock.group as g
    where q.name = 'orders' and g.name = 'default'
    order by v.number
"""
WRITTEN = """
    select a.first, a.event, a.state, t.state, t.until_at, t.attempt, t.expires_at, d.outcome
    from penstock.audit as a
    left join penstock.tracked as t on t.position = a.first
    left join penstock.dead_letter as d on d.position = a.first
    order by a.first
"""


@pytest.fixture
def session(postgres_url: str) -> Iterator[psycopg.Connection]:
    """The store is left as it was: everything is undone at the end."""
    with psycopg.connect(postgres_url) as connection:
        connection.execute(PREPARE.format(random=RANDOM).encode())
        connection.cursor().executemany(
            "insert into penstock.batch (batch_id, queue_id, name, state, created_at) overriding system value "
            "values (%s, 0, 'any', %s, 1)",
            list(BATCH_STATES.items()),
        )
        with connection.cursor().copy("copy vector from stdin") as copy:
            for vector in vectors():
                copy.write_row(vector)
        yield connection
        connection.rollback()


def rows(session: psycopg.Connection, statement: str, *values: object) -> list[Any]:
    return session.execute(statement.encode(), values or None).fetchall()


def test_every_event_on_a_leased_message_is_decided_as_in_python(session: psycopg.Connection) -> None:
    answers = dict(rows(session, APPLY, NOW))
    written = {row[0]: row[1:] for row in rows(session, WRITTEN)}
    assert len(answers) == len(written) == len(vectors())
    wrong = [
        f"{vector}: {answers[vector.number]} {written[vector.number]}, not {expected}"
        for vector in vectors()
        if (expected := _expected(vector.decision())) != (answers[vector.number], *written[vector.number])
    ]
    assert not wrong, "\n".join(wrong[:20])


def _expected(decision: Decision) -> tuple[object, ...]:
    if decision.state in LIVE:
        kept: tuple[object, ...] = decision.state, decision.due_at, decision.attempt, decision.expires_at, None
    else:
        kept = None, None, None, None, None if decision.state == "succeeded" else decision.state
    return decision.state, decision.event, decision.state, *kept


def test_a_lease_that_ends_makes_a_message_ready_in_the_cases_of_python(session: psycopg.Connection) -> None:
    """Many messages at once are made ready by one statement, which has to know which of them `_conclude` would."""
    ready = dict(
        rows(
            session,
            "select v.number, penstock._is_retried(jsonb_populate_record(q, to_jsonb(v) - 'deadline_at'), v.event, "
            "v.attempt, v.expires_at, v.batch_id, %s) from vector as v, penstock.queue as q "
            "where v.event in ('release', 'lease_end')",
            NOW,
        )
    )
    assert ready
    wrong = [
        str(vector)
        for vector in vectors()
        if vector.number in ready and ready[vector.number] != (vector.decision().state == "ready")
    ]
    assert not wrong, "\n".join(wrong[:20])


def test_the_end_of_a_lease_and_the_right_to_settle_are_those_of_python(session: psycopg.Connection) -> None:
    values = "(values (null), (-1), (0), (500000), (1000000)) as {0} ({0})"
    cases = rows(
        session,
        "select e, d, s, penstock._lease_end(%s, s, %s + e, %s + d), "
        "penstock._can_settle(%s + t, %s + d, %s + e, %s), t "
        f"from {values.format('e')}, {values.format('d')}, (values (0.5::float8), (1.0), (0.0)) as s (s), "
        "(values (-1), (0), (500000), (1000000)) as t (t)",
        *[NOW] * 7,
    )
    assert len(cases) == 5 * 5 * 3 * 4
    for expires, deadline, seconds, end, held, ends in cases:
        leased = Attempt(1, _from_now(expires), _from_now(deadline))
        assert (end, held) == (lease_end(leased, NOW, float(seconds)), is_held(leased, NOW + ends, NOW))


def _from_now(microseconds: int | None) -> int | None:
    return None if microseconds is None else NOW + microseconds
