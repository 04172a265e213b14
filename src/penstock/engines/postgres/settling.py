"""leased -> what the consumer says, each by its token."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain.lifecycle import State
from penstock.domain.settlement import Settle, Settled, lease_lost, out_of_order
from penstock.engines.postgres import shapes
from penstock.engines.postgres.arrays import Numbers
from penstock.engines.postgres.connection import Database
from penstock.engines.statements import Statements

# What the function answers instead of a state.
OUT_OF_ORDER = "out_of_order"
SQL = Statements("penstock.engines.postgres", "sql/verbs.sql")


def settle(database: Database, queue: str, group: str, settles: Sequence[Settle]) -> list[Settled]:
    parameters = (
        queue,
        group,
        [str(one.event) for one in settles],
        Numbers([one.token for one in settles]),
        Numbers([one.position for one in settles]),
        [shapes.storable(one.reason) for one in settles],
        [None if one.delay_seconds is None else float(one.delay_seconds) for one in settles],
    )
    states = database.value(SQL.settle, parameters)
    return [_settled(one, state) for one, state in zip(settles, states, strict=True)]


def _settled(settle: Settle, state: str | None) -> Settled:
    if state is None:
        return lease_lost(settle)
    return out_of_order(settle) if state == OUT_OF_ORDER else Settled(settle.id, State(state))
