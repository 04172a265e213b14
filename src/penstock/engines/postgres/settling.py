"""leased -> what the consumer says, each by its token."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain.errors import LeaseLost
from penstock.domain.lifecycle import State
from penstock.domain.settlement import Settle, Settled
from penstock.engines.postgres import shapes
from penstock.engines.postgres.arrays import Numbers
from penstock.engines.postgres.connection import Database
from penstock.engines.statements import Statements

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
    return [
        _lost(one) if state is None else Settled(one.id, State(state))
        for one, state in zip(settles, states, strict=True)
    ]


def _lost(settle: Settle) -> Settled:
    lost = LeaseLost(
        f"lease {settle.token} on message {settle.id} was lost: it ended, was settled or was taken over; "
        f"the {settle.event} changed nothing"
    )
    return Settled(settle.id, None, lost)
