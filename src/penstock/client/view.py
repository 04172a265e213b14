"""The fields of a delivery, the same for both clients. They are decoded on access, so that a large receive costs one
small object per message."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from penstock.domain.identity import made_id
from penstock.domain.message import BATCH_HEADER, BYTES, SYSTEM, decode_headers, decode_json
from penstock.domain.timestamps import to_optional_time, to_time
from penstock.engines import contract
from penstock.engines.contract import Receipt, Row


class DeliveryView(msgspec.Struct, eq=False, gc=False):
    """Not tracked by the garbage collector, which would traverse all deliveries of a large receive repeatedly."""

    _row: Row
    _receipt: Receipt

    @property
    def id(self) -> str:
        chosen: str | None = self._row[contract.ID]
        if chosen is not None:
            return chosen
        return made_id(self._row[contract.CREATED_AT], self._receipt.salt, self._row[contract.POSITION])

    @property
    def payload(self) -> bytes:
        payload: bytes = self._row[contract.PAYLOAD]
        return payload

    def json(self) -> Any:
        return decode_json(self.payload)

    @property
    def attempt(self) -> int:
        """1 on the first delivery."""
        attempt: int = self._row[contract.ATTEMPT]
        return attempt

    @property
    def token(self) -> int:
        """The fencing token that settles it. Later tokens are greater."""
        return self._receipt.token

    @property
    def lease_ends_at(self) -> datetime:
        return to_time(self._row[contract.LEASE_ENDS_AT])

    @property
    def queue(self) -> str:
        return self._receipt.queue

    @property
    def group(self) -> str:
        return self._receipt.group

    @property
    def consumer(self) -> str:
        return self._receipt.consumer

    @property
    def position(self) -> int:
        position: int = self._row[contract.POSITION]
        return position

    @property
    def priority(self) -> int:
        priority: int = self._row[contract.PRIORITY]
        return priority

    @property
    def content_type(self) -> str:
        return self._row[contract.CONTENT_TYPE] or BYTES

    @property
    def headers(self) -> dict[str, str]:
        return decode_headers(self._row[contract.HEADERS])

    @property
    def created_at(self) -> datetime:
        return to_time(self._row[contract.CREATED_AT])

    @property
    def created_by(self) -> str:
        return self._row[contract.CREATED_BY] or SYSTEM

    @property
    def expires_at(self) -> datetime | None:
        return to_optional_time(self._row[contract.EXPIRES_AT])

    @property
    def deadline_at(self) -> datetime | None:
        return to_optional_time(self._row[contract.DEADLINE_AT])

    @property
    def address(self) -> str | None:
        address: str | None = self._row[contract.ADDRESS]
        return address

    @property
    def key(self) -> str | None:
        key: str | None = self._row[contract.KEY]
        return key

    @property
    def batch(self) -> str | None:
        """The batch whose member, end message or abort message it is."""
        batch: str | None = self._row[contract.BATCH]
        return batch or self.headers.get(BATCH_HEADER)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.queue!r} to {self.group!r}, attempt {self.attempt}>"
