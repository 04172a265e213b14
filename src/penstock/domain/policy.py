"""The policy of a queue: what is true for all its messages unless a send says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from zlib import crc32

import msgspec

from penstock.domain.errors import InvalidInput, InvalidPolicy
from penstock.domain.names import check_name, nearest, shown
from penstock.domain.times import check_integer, check_seconds

Delivery = Literal["at_least_once", "at_most_once"]
MEBIBYTE = 1 << 20
DAY = 24 * 3600


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """A duration ends in `_seconds`. `max_retries=None` retries without limit, `ttl_seconds=None` never expires,
    `primary_group=None` makes a queue in which an unread message just expires, and which keeps every message until
    then: `history_seconds` count from its expiry, and without one it stays until it is trimmed or removed."""

    lease_seconds: float = 30
    max_retries: int | None = 7
    backoff_base_seconds: float = 10
    backoff_factor: float = 2
    backoff_jitter_seconds: float = 5
    backoff_max_seconds: float = 3600
    delay_seconds: float = 0
    ttl_seconds: float | None = None
    delivery: Delivery = "at_least_once"
    shards: int = 1
    ordered: bool = False
    primary_group: str | None = "default"
    history_seconds: float = DAY
    group_idle_seconds: float = 7 * DAY
    dead_letter_seconds: float = 91 * DAY
    max_payload_bytes: int = 16 * MEBIBYTE
    paused: bool = False

    @property
    def default_group(self) -> str:
        """Who receives when nobody says otherwise."""
        return self.primary_group or "default"

    @property
    def keeps_order(self) -> bool:
        """Whether one message waits for another in its shard. At most once, a lease holds one message of a shard."""
        return self.ordered and not self.at_most_once

    @property
    def at_most_once(self) -> bool:
        return self.delivery == "at_most_once"

    def shard_of(self, key: str | None) -> int:
        """The shard of a key; in an ordered queue messages without a key count as one key."""
        return crc32((key or "").encode()) % self.shards


# SQLite's own limit for one value is a billion bytes; a page of headers must fit beside the payload.
MAX_PAYLOAD_BYTES = 512 * MEBIBYTE
MAX_SHARDS = 1024


def check_changes(changes: Mapping[str, object]) -> dict[str, Any]:
    """The given fields, each checked; an error names the field, the value and what would be right."""
    return {name: _check_field(name, value) for name, value in changes.items()}


def _check_field(name: str, value: object) -> object:
    check = _CHECKS.get(name)
    if check is None:
        raise InvalidPolicy(f"unknown policy field {shown(name)}{nearest(name, _CHECKS)}")
    try:
        return check(name, value)
    except InvalidPolicy:
        raise
    except InvalidInput as error:
        raise InvalidPolicy(str(error)) from None


def _seconds(name: str, value: object) -> float:
    return check_seconds(name, value)


def _positive_seconds(name: str, value: object) -> float:
    return check_seconds(name, value, above=True)


def _optional_seconds(name: str, value: object) -> float | None:
    return None if value is None else check_seconds(name, value, above=True)


def _factor(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 100:
        raise InvalidPolicy(f"{name} must be a number between 1 and 100, not {shown(value)}")
    return value


def _retries(name: str, value: object) -> int | None:
    return None if value is None else check_integer(name, value, 0, 1_000_000)


def _delivery(name: str, value: object) -> object:
    if value not in ("at_least_once", "at_most_once"):
        raise InvalidPolicy(f"{name} must be 'at_least_once' or 'at_most_once', not {shown(value)}")
    return value


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidPolicy(f"{name} must be true or false, not {shown(value)}")
    return value


_CHECKS = {
    "lease_seconds": _positive_seconds,
    "max_retries": _retries,
    "backoff_base_seconds": _seconds,
    "backoff_factor": _factor,
    "backoff_jitter_seconds": _seconds,
    "backoff_max_seconds": _seconds,
    "delay_seconds": _seconds,
    "ttl_seconds": _optional_seconds,
    "delivery": _delivery,
    "shards": lambda name, value: check_integer(name, value, 1, MAX_SHARDS),
    "ordered": _flag,
    "primary_group": lambda name, value: None if value is None else check_name(name, value),
    "history_seconds": _seconds,
    "group_idle_seconds": _positive_seconds,
    "dead_letter_seconds": _seconds,
    "max_payload_bytes": lambda name, value: check_integer(name, value, 1, MAX_PAYLOAD_BYTES),
    "paused": _flag,
}
