"""The result of one receive."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.domain.identity import made_id, made_ids

# A row of a receipt is a plain tuple, because a receive of thousands must not build thousands of objects:
# (position, created_at, id or None, content_type, headers, expires_at, deadline_at, address, key, batch,
#  created_by, payload, priority, attempt, lease_ends_at)
# The id is None when Penstock makes it (`identity.made_id`). Times are microseconds.
Row = tuple[Any, ...]
POSITION, CREATED_AT, ID, CONTENT_TYPE, HEADERS, EXPIRES_AT, DEADLINE_AT, ADDRESS, KEY, BATCH, CREATED_BY, PAYLOAD = (
    range(12)
)
PRIORITY, ATTEMPT, LEASE_ENDS_AT = range(12, 15)


class Receipt(msgspec.Struct, frozen=True, eq=False):
    """The messages of one receive, under one token. `is_cut` is set where the receive was stopped short of its limit
    although there may be more messages."""

    token: int
    queue: str
    group: str
    consumer: str
    salt: int
    rows: list[Row]
    is_cut: bool = False

    def id_of(self, row: Row) -> str:
        return row[ID] or made_id(row[CREATED_AT], self.salt, row[POSITION])

    def ids(self) -> list[str]:
        rows, salt = self.rows, self.salt
        if len(rows) > 1 and rows[-1][POSITION] - rows[0][POSITION] == len(rows) - 1:
            # Mostly messages of one send in a row, whose ids are cheaper together.
            first, created_at, _ = rows[0][:3]
            if [row[:3] for row in rows] == [(first + place, created_at, None) for place in range(len(rows))]:
                return made_ids(created_at, salt, first, first + len(rows) - 1)
        return [row[ID] or made_id(row[CREATED_AT], salt, row[POSITION]) for row in rows]
