"""The policy of a queue: the settings that hold for all its messages unless a send overrides them.

`Policy` is the only table of policy fields: name, type, bounds, default and description. `FIELDS` is the same table as
values: validation and docs/policy.md follow from it, and tests compare the columns and checks of the SQL engines, the
HTTP schema, the dashboard's form and the command line with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Annotated, Any, Literal, TypedDict, get_args, get_type_hints
from zlib import crc32

import msgspec

from penstock.domain.errors import InvalidInput, InvalidPolicy
from penstock.domain.limits import (
    MAX_BACKOFF_FACTOR,
    MAX_PAYLOAD_BYTES,
    MAX_RETRIES,
    MAX_SECONDS,
    MAX_SHARDS,
    MEBIBYTE,
)
from penstock.domain.validation import check_integer, check_name, check_seconds, nearest, shown

Delivery = Literal["at_least_once", "at_most_once"]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS)]
PositiveSeconds = Annotated[float, msgspec.Meta(gt=0, le=MAX_SECONDS)]
DAY = 24 * 3600


def _described(description: str) -> msgspec.Meta:
    return msgspec.Meta(description=description)


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """The settings of a queue. A duration ends in `_seconds`; `None` switches a bound off."""

    lease_seconds: Annotated[
        PositiveSeconds, _described("how long a receiver may hold a message before it settles")
    ] = 30
    max_retries: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=MAX_RETRIES)] | None,
        _described("retries after the first attempt, before the message becomes a dead letter; none is without limit"),
    ] = 7
    backoff_base_seconds: Annotated[Seconds, _described("delay before the first retry")] = 10
    backoff_factor: Annotated[
        Annotated[float, msgspec.Meta(ge=1, le=MAX_BACKOFF_FACTOR)], _described("growth of the delay with each retry")
    ] = 2
    backoff_jitter_seconds: Annotated[Seconds, _described("largest random addition to the delay before a retry")] = 5
    backoff_max_seconds: Annotated[Seconds, _described("largest delay before a retry, without the jitter")] = 3600
    delay_seconds: Annotated[Seconds, _described("delay before the first delivery of a message")] = 0
    ttl_seconds: Annotated[
        PositiveSeconds | None, _described("lifetime of a message, after which it expires; none is forever")
    ] = None
    delivery: Annotated[
        Delivery, _described("whether a message is delivered again when its lease ends; a `nak` always retries")
    ] = "at_least_once"
    shards: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=MAX_SHARDS)],
        _described("parts of the log that can be received in parallel"),
    ] = 1
    ordered: Annotated[bool, _described("whether messages with the same key are processed one after the other")] = False
    primary_group: Annotated[
        str | None,
        _described(
            "the group that addresses, batches and the dead letters of unread messages belong to; with none, an unread "
            "message just expires, and `history_seconds` count from its expiry"
        ),
    ] = "default"
    history_seconds: Annotated[
        Seconds, _described("how long messages stay readable after every group has finished them")
    ] = DAY
    group_idle_seconds: Annotated[
        PositiveSeconds, _described("a group that was not used for this long no longer holds back retention")
    ] = 7 * DAY
    dead_letter_seconds: Annotated[Seconds, _described("how long dead letters are kept")] = 91 * DAY
    max_payload_bytes: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=MAX_PAYLOAD_BYTES)], _described("largest payload that a send may have")
    ] = 16 * MEBIBYTE
    paused: Annotated[bool, _described("whether receives return nothing; sends and settlements go on")] = False

    @property
    def default_group(self) -> str:
        """The group of a receive that names none."""
        return self.primary_group or "default"

    @property
    def keeps_order(self) -> bool:
        """Whether a message waits for the one before it in its shard. With at_most_once a lease holds only one message
        of a shard, so there is nothing to wait for."""
        return self.ordered and not self.at_most_once

    @property
    def at_most_once(self) -> bool:
        return self.delivery == "at_most_once"

    def shard_of(self, key: str | None) -> int:
        """The shard of a key. In an ordered queue all messages without a key share one shard."""
        return crc32((key or "").encode()) % self.shards

    def shard_among(self, first: int, place: int, count: int) -> int:
        """The shard of message number `place` of `count` that are sent together, without keys, to an unordered queue.
        Shards get equal shares of consecutive messages; `first` is the shard of the first message."""
        return (first + place * min(self.shards, count) // count) % self.shards


class PolicyFields(TypedDict, total=False):
    """The fields of `Policy` as optional keywords. Type checkers need them spelled out; a test compares the two."""

    lease_seconds: float
    max_retries: int | None
    backoff_base_seconds: float
    backoff_factor: float
    backoff_jitter_seconds: float
    backoff_max_seconds: float
    delay_seconds: float
    ttl_seconds: float | None
    delivery: Delivery
    shards: int
    ordered: bool
    primary_group: str | None
    history_seconds: float
    group_idle_seconds: float
    dead_letter_seconds: float
    max_payload_bytes: int
    paused: bool


Kind = Literal["seconds", "integer", "number", "boolean", "choice", "name"]
_KINDS: dict[type, Kind] = {bool: "boolean", int: "integer", float: "number", str: "name"}


class PolicyField(msgspec.Struct, frozen=True):
    """One row of the table of policy fields. With `excludes_minimum` the value must be above `minimum`."""

    name: str
    kind: Kind
    default: Any
    description: str
    is_nullable: bool = False
    minimum: float | None = None
    maximum: float | None = None
    excludes_minimum: bool = False
    choices: tuple[str, ...] = ()

    def check(self, value: object) -> object:
        """The value, or an error that names the field, the value and what would be right."""
        if value is None and self.is_nullable:
            return value
        if self.kind == "seconds":
            return check_seconds(self.name, value, minimum=self.minimum or 0, above=self.excludes_minimum)
        if self.kind == "integer":
            return check_integer(self.name, value, int(self.minimum or 0), int(self.maximum or 0))
        if self.kind == "name":
            return check_name(self.name, value)
        if self.kind == "boolean":
            if not isinstance(value, bool):
                raise InvalidPolicy(f"{self.name} must be true or false, not {shown(value)}")
        elif self.kind == "choice":
            if value not in self.choices:
                raise InvalidPolicy(f"{self.name} must be {' or '.join(map(repr, self.choices))}, not {shown(value)}")
        elif isinstance(value, bool) or not isinstance(value, int | float) or not self._allows(value):
            raise InvalidPolicy(
                f"{self.name} must be a number between {self.minimum} and {self.maximum}, not {shown(value)}"
            )
        return value

    def _allows(self, value: float) -> bool:
        return self.minimum is not None and self.maximum is not None and self.minimum <= value <= self.maximum


def _field(name: str, hint: Any, default: object) -> PolicyField:
    """A row of the table from its line in `Policy`."""
    metas = [meta for meta in hint.__metadata__ if isinstance(meta, msgspec.Meta)]
    union = get_args(hint.__origin__)
    is_nullable = NoneType in union
    inner = next(part for part in union if part is not NoneType) if is_nullable else hint.__origin__
    if hasattr(inner, "__metadata__"):
        metas += inner.__metadata__
        inner = inner.__origin__
    bounds = next((meta for meta in metas if meta.le is not None), msgspec.Meta())
    choices = () if inner in _KINDS else get_args(inner)
    return PolicyField(
        name=name,
        kind="choice" if choices else "seconds" if name.endswith("_seconds") else _KINDS[inner],
        default=default,
        description=next(meta.description for meta in metas if meta.description),
        is_nullable=is_nullable,
        minimum=bounds.ge if bounds.gt is None else bounds.gt,
        maximum=bounds.le,
        excludes_minimum=bounds.gt is not None,
        choices=choices,
    )


def _fields() -> dict[str, PolicyField]:
    hints, defaults = get_type_hints(Policy, include_extras=True), Policy()
    return {name: _field(name, hints[name], getattr(defaults, name)) for name in Policy.__struct_fields__}


FIELDS = _fields()


def check_changes(changes: Mapping[str, object]) -> dict[str, Any]:
    """The given fields, each checked; an error names the field, the value and what would be right."""
    return {name: _check_field(name, value) for name, value in changes.items()}


def _check_field(name: str, value: object) -> object:
    field = FIELDS.get(name)
    if field is None:
        raise InvalidPolicy(f"unknown policy field {shown(name)}{nearest(name, FIELDS)}")
    try:
        return field.check(value)
    except InvalidPolicy:
        raise
    except InvalidInput as error:
        raise InvalidPolicy(str(error)) from None
