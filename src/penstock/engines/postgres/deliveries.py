"""Deliveries: receiving messages, settling them, and extending their leases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.domain.errors import ConsumerRemoved
from penstock.domain.lifecycle import State
from penstock.domain.results import LeaseInfo
from penstock.domain.settlement import Settle, Settled, lease_lost, out_of_order
from penstock.domain.timestamps import SECOND
from penstock.engines.contract import Receipt
from penstock.engines.postgres import rows
from penstock.engines.postgres.calls import SQL, Caller
from penstock.engines.postgres.dumpers import Numbers

# What `settle` returns instead of a state, and the prefix of the state of a repeated settlement.
OUT_OF_ORDER = "out_of_order"
REPEATED = "="


class PostgresDeliveries(Caller):
    def receive(
        self,
        queue: str,
        group: str | None,
        consumer: str,
        limit: int,
        lease_seconds: float | None,
        needs_group: bool = False,
    ) -> Receipt:
        """A receive that is all that its transaction does is not waited for on disk: a power cut that undoes it means a
        redelivery. The function decides where that is allowed."""
        durable = self.database.is_inside
        found = self._rows(SQL.receive_messages, queue, group, consumer, limit, lease_seconds, durable, needs_group)
        return self._receipt(queue, consumer, found)

    def receive_each(
        self,
        queue: str,
        group: str | None,
        shares: Sequence[tuple[str, int]],
        lease_seconds: float | None,
        needs_group: bool = False,
    ) -> list[Receipt]:
        receipts: list[Receipt] = []
        is_dry = False
        for consumer, limit in shares:
            if not is_dry:
                try:
                    receipts.append(self.receive(queue, group, consumer, limit, lease_seconds, needs_group))
                    is_dry = not receipts[-1].rows
                    continue
                except ConsumerRemoved:
                    # What others have received must reach them; this consumer is refused when it comes first.
                    if not receipts:
                        raise
            # When one comes back empty, so would all after it.
            receipts.append(msgspec.structs.replace(receipts[-1], consumer=consumer, rows=[]))
        return receipts

    def _receipt(self, queue: str, consumer: str, found: list[tuple[Any, ...]]) -> Receipt:
        last = found.pop()
        return Receipt(last[1], queue, last[3], consumer, self.salt, found)

    def ready_in(self, queue: str, group: str | None) -> float | None:
        microseconds = self._value(SQL.ready_in, queue, group)
        return None if microseconds is None else microseconds / SECOND

    def settle(self, queue: str, group: str, settles: Sequence[Settle]) -> list[Settled]:
        """In the order of their leases, so that two calls which settle messages of the same leases do not wait for each
        other."""
        if not settles:
            return []
        if len(settles) == 1:
            return self._settle(queue, group, settles)
        places = sorted(range(len(settles)), key=lambda place: (settles[place].token, settles[place].position))
        results = dict(zip(places, self._settle(queue, group, [settles[place] for place in places]), strict=True))
        return [results[place] for place in range(len(settles))]

    def _settle(self, queue: str, group: str, settles: Sequence[Settle]) -> list[Settled]:
        states = self._changed(
            SQL.settle,
            queue,
            group,
            [str(one.event) for one in settles],
            Numbers([one.token for one in settles]),
            Numbers([one.position for one in settles]),
            [rows.storable(one.reason) for one in settles],
            [None if one.delay_seconds is None else float(one.delay_seconds) for one in settles],
            [one.code for one in settles] if any([one.code for one in settles]) else None,
        )
        return [_settled(one, state) for one, state in zip(settles, states, strict=True)]

    def ack_all(self, queue: str, group: str, token: int, positions: list[int]) -> bool:
        return bool(self._changed(SQL.ack_whole, queue, group, token, len(positions), sum(positions)))

    def extend(self, queue: str, group: str, leases: Sequence[tuple[int, int]], seconds: float) -> list[int | None]:
        tokens = Numbers([token for token, _ in leases])
        positions = Numbers([position for _, position in leases])
        ends: list[int | None] = self._value(SQL.extend_each, queue, group, tokens, positions, seconds)
        return ends

    def position(self, queue: str, message_id: str) -> int:
        with self._suggesting(queue):
            return int(self._value(SQL.position_of, queue, message_id))

    def leases(
        self,
        queue: str,
        group: str,
        *,
        ids: Sequence[str] | None = None,
        consumer: str | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> list[LeaseInfo]:
        wanted = None if ids is None else list(dict.fromkeys(ids))
        most = limit if wanted is None else max(1, len(wanted))
        return [rows.lease_info(row) for row in self._rows(SQL.leases, queue, group, wanted, consumer, after, most)]


def _settled(settle: Settle, state: str | None) -> Settled:
    if state is None:
        return lease_lost(settle)
    if state == OUT_OF_ORDER:
        return out_of_order(settle)
    return Settled(settle.id, State(state.removeprefix(REPEATED)), is_repeat=state.startswith(REPEATED))
