"""leased -> what the consumer asks for: settling deliveries, each by its token."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain.lifecycle import State
from penstock.domain.settlement import Settle, Settled, lease_lost, out_of_order
from penstock.engines.postgres import rows
from penstock.engines.postgres.connection import Database
from penstock.engines.postgres.dumpers import Numbers
from penstock.engines.statements import Statements

# What the function answers instead of a state, and what it puts before the state of a settlement made before.
OUT_OF_ORDER = "out_of_order"
REPEATED = "="
SQL = Statements("penstock.engines.postgres", "sql/verbs.sql")


def settle(database: Database, queue: str, group: str, settles: Sequence[Settle]) -> list[Settled]:
    """In the order of their leases, so that two calls which settle messages of the same leases do not wait for each
    other."""
    if len(settles) == 1:
        return _settle(database, queue, group, settles)
    places = sorted(range(len(settles)), key=lambda place: (settles[place].token, settles[place].position))
    results = dict(zip(places, _settle(database, queue, group, [settles[place] for place in places]), strict=True))
    return [results[place] for place in range(len(settles))]


def _settle(database: Database, queue: str, group: str, settles: Sequence[Settle]) -> list[Settled]:
    parameters = (
        queue,
        group,
        [str(one.event) for one in settles],
        Numbers([one.token for one in settles]),
        Numbers([one.position for one in settles]),
        [rows.storable(one.reason) for one in settles],
        [None if one.delay_seconds is None else float(one.delay_seconds) for one in settles],
        [one.code for one in settles] if any([one.code for one in settles]) else None,
    )
    states = database.value(SQL.settle, parameters)
    return [_settled(one, state) for one, state in zip(settles, states, strict=True)]


def _settled(settle: Settle, state: str | None) -> Settled:
    if state is None:
        return lease_lost(settle)
    if state == OUT_OF_ORDER:
        return out_of_order(settle)
    return Settled(settle.id, State(state.removeprefix(REPEATED)), is_repeat=state.startswith(REPEATED))
