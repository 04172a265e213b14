"""Types of values in paths, queries and bodies, for the OpenAPI document. The domain validates them; the annotations
are for readers and for client generators."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from msgspec import Meta

from penstock.client.queue import MAX_LIMIT as STORE_LIMIT
from penstock.client.settlements import MAX_TOKEN
from penstock.domain.lifecycle import OUTCOMES, State
from penstock.domain.limits import MAX_PRIORITY, MAX_SECONDS

# A response must fit into memory, with the payloads.
MAX_LIMIT = 1_000
NAME_SCHEMA = {"minLength": 1, "maxLength": 255, "pattern": r"^[^\x00-\x1f\x7f-\x9f]+$"}
NAME_RULE = "1 to 255 bytes of UTF-8 without control characters; a slash in a path is %2F"


def _name(what: str) -> Meta:
    return Meta(description=f"{what}: {NAME_RULE}", extra_json_schema=NAME_SCHEMA)


QueueName = Annotated[str, _name("a queue")]
GroupName = Annotated[str, _name("a group; the queue's primary group when left out")]
ConsumerName = Annotated[str, _name("a consumer")]
BatchName = Annotated[str, _name("a batch")]
ScheduleName = Annotated[str, _name("a schedule")]
Address = Annotated[str, _name("an address")]
Name = Annotated[str, _name("a name")]
MessageId = Annotated[
    str,
    Meta(
        description="the id of a message, a UUID",
        extra_json_schema={"format": "uuid", "pattern": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"},
    ),
]
Base64 = Annotated[
    str,
    Meta(
        extra_json_schema={
            "contentEncoding": "base64",
            "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
        }
    ),
]


def whole(least: int, most: int, what: str) -> Any:
    """An integer, which JSON may write as 7.0; `Input` converts it."""
    bounds = Meta(ge=least, le=most)
    schema = {"type": "integer", "minimum": least, "maximum": most}
    return Annotated[
        Annotated[int, bounds] | Annotated[float, bounds],
        Meta(description=what, extra_json_schema=schema),
    ]


if TYPE_CHECKING:
    Token: TypeAlias = int
    Position: TypeAlias = int
    Limit: TypeAlias = int
    BulkLimit: TypeAlias = int
    Priority: TypeAlias = int
    Misses: TypeAlias = int
    HeartbeatCount: TypeAlias = int
else:
    Token = whole(0, MAX_TOKEN, "the token of the delivery")
    Position = whole(0, 1 << 48, "the position of the message in the log")
    Limit = whole(1, MAX_LIMIT, f"how many at most, up to {MAX_LIMIT}")
    BulkLimit = whole(1, STORE_LIMIT, "how many at most")
    Priority = whole(0, MAX_PRIORITY, "0 is best")
    Misses = whole(0, 1_000_000, "heartbeats that may be missed")
    HeartbeatCount = whole(1, 1_000_000, "a number of heartbeats")
Seconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]
PositiveSeconds = Annotated[float, Meta(gt=0, le=MAX_SECONDS)]
# Negative means now.
Delay = Annotated[float, Meta(ge=-MAX_SECONDS, le=MAX_SECONDS, description="seconds from now; less than 0 means now")]
Wait = Annotated[float, Meta(ge=0, le=MAX_SECONDS, description="seconds to wait for the first one")]
Time = Annotated[datetime, Meta(tz=True)]
Reason = Annotated[str, Meta(description="why, for the audit trail")]
Mark = Annotated[str, Meta(description="where to go on: `next` of the page before", max_length=100)]
MessageStateName = Annotated[
    str, Meta(description="where messages stand", extra_json_schema={"enum": [state.value for state in State]})
]
Code = Annotated[str, _name("a code by which programs know the error")]
Outcome = Annotated[
    str, Meta(description="how messages ended", extra_json_schema={"enum": [outcome.value for outcome in OUTCOMES]})
]
