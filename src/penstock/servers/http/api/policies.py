"""Changes of a queue's policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.domain.policy import MAX_PAYLOAD_BYTES, MAX_SHARDS
from penstock.servers.http.api.inputs import Input
from penstock.servers.http.api.values import Name, PositiveSeconds, Seconds, whole

if TYPE_CHECKING:
    Retries: TypeAlias = int
    Shards: TypeAlias = int
    PayloadBytes: TypeAlias = int
else:
    Retries = whole(0, 1_000_000, "null for no limit")
    Shards = whole(1, MAX_SHARDS, "parts of the log")
    PayloadBytes = whole(1, MAX_PAYLOAD_BYTES, "the largest payload")
Factor = Annotated[float, Meta(ge=1, le=100)]


class PolicyChanges(Input, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields to set; those left out keep their value."""

    wholes: ClassVar[tuple[str, ...]] = ("max_retries", "shards", "max_payload_bytes")

    lease_seconds: PositiveSeconds | UnsetType = UNSET
    max_retries: Retries | UnsetType | None = UNSET
    backoff_base_seconds: Seconds | UnsetType = UNSET
    backoff_factor: Factor | UnsetType = UNSET
    backoff_jitter_seconds: Seconds | UnsetType = UNSET
    backoff_max_seconds: Seconds | UnsetType = UNSET
    delay_seconds: Seconds | UnsetType = UNSET
    ttl_seconds: PositiveSeconds | UnsetType | None = UNSET
    delivery: Literal["at_least_once", "at_most_once"] | UnsetType = UNSET
    shards: Shards | UnsetType = UNSET
    ordered: bool | UnsetType = UNSET
    primary_group: Name | UnsetType | None = UNSET
    history_seconds: Seconds | UnsetType = UNSET
    group_idle_seconds: PositiveSeconds | UnsetType = UNSET
    dead_letter_seconds: Seconds | UnsetType = UNSET
    max_payload_bytes: PayloadBytes | UnsetType = UNSET
    paused: bool | UnsetType = UNSET

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not UNSET}
