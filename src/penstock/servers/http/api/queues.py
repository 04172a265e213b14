"""Queues: list, numbers, policy, pause, seek, flush."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.domain.errors import InvalidInput, NotFound
from penstock.domain.names import nearest, shown
from penstock.domain.observations import SweepReport
from penstock.domain.policy import Policy, check_changes
from penstock.servers.access import Right
from penstock.servers.http.api.documents import (
    Count,
    Groups,
    Me,
    PolicyDocument,
    QueueDocument,
    Queues,
    Sought,
)
from penstock.servers.http.api.operations import Call, operation
from penstock.servers.http.api.values import GroupName, QueueName

TAG = "queues"


@operation("GET", "/queues", Right.LOOK, TAG)
async def list_queues(call: Call) -> Queues:
    """All queues that the user may look at, by name, with their policies and groups."""
    return Queues([info for info in await call.store.queues() if call.identity.may(Right.LOOK, info.name)])


@operation("GET", "/queues/{queue}", Right.LOOK, TAG)
async def show_queue(call: Call, queue: QueueName) -> QueueDocument:
    """One queue: its policy, the numbers of its groups, its consumers and batches."""
    engine = (await call.known(queue)).engine

    def look() -> QueueDocument:
        info = next(info for info in engine.queues() if info.name == queue)
        stats, consumers, batches = engine.stats(queue), engine.consumers(queue), engine.batches(queue)
        return QueueDocument(queue, info.created_at, info.policy, stats, consumers, batches)

    return await call.store._read(look)


@operation("GET", "/queues/{queue}/stats", Right.LOOK, TAG)
async def stats(call: Call, queue: QueueName, *, group: GroupName | None = None) -> Groups:
    """Counts of every group, or of one, in one snapshot and without reading messages."""
    every = await (await call.known(queue)).stats()
    if group is None:
        return Groups(every)
    if group not in every:
        raise NotFound(f"queue {shown(queue)} has no group {shown(group)}{nearest(group, every)}")
    return Groups({group: every[group]})


# -- policies --------------------------------------------------------------------------------------------------------


PolicyChanges = msgspec.defstruct(
    "PolicyChanges",
    [(field.name, field.type | UnsetType, UNSET) for field in msgspec.structs.fields(Policy)],
    namespace={"__doc__": "Fields to set; those left out keep their value."},
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
)


@operation("GET", "/queues/{queue}/policy", Right.LOOK, TAG)
async def policy(call: Call, queue: QueueName) -> PolicyDocument:
    """What is true for all messages of a queue unless a send says otherwise."""
    return PolicyDocument(queue, await (await call.known(queue)).policy())


@operation("PATCH", "/queues/{queue}/policy", Right.MANAGE, TAG)
async def declare(call: Call, queue: QueueName, body: PolicyChanges) -> PolicyDocument:  # type: ignore[valid-type]  # made from Policy
    """Set fields of a queue's policy, and make the queue if it is new."""
    fields: dict[str, Any] = msgspec.structs.asdict(body)
    changes = check_changes({name: value for name, value in fields.items() if value is not UNSET})
    source = call.queue(queue)
    return PolicyDocument(queue, await source._run(lambda: source.engine.declare(queue, changes)))


@operation("POST", "/queues/{queue}/pause", Right.OPERATE, TAG)
async def pause(call: Call, queue: QueueName) -> PolicyDocument:
    """Hand out nothing until resumed; sends and settlements go on."""
    return await _set_paused(call, queue, True)


@operation("POST", "/queues/{queue}/resume", Right.OPERATE, TAG)
async def resume(call: Call, queue: QueueName) -> PolicyDocument:
    """Hand out messages again."""
    return await _set_paused(call, queue, False)


async def _set_paused(call: Call, queue: str, paused: bool) -> PolicyDocument:
    source = await call.known(queue)
    return PolicyDocument(queue, await source._run(lambda: source.engine.declare(queue, {"paused": paused})))


@operation("POST", "/queues/{queue}/flush", Right.MANAGE, TAG)
async def flush(call: Call, queue: QueueName) -> Count:
    """Remove every message, as if the queue had just been made. Counts them."""
    return Count(await (await call.known(queue)).flush())


# -- groups ----------------------------------------------------------------------------------------------------------


class Seeking(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`to` is "start", "end", a position, or a time with a zone."""

    to: Annotated[
        int | str,
        Meta(
            extra_json_schema={
                "anyOf": [
                    {"enum": ["start", "end"]},
                    {"type": "integer", "minimum": 0, "maximum": 1 << 48},
                    {"type": "string", "format": "date-time"},
                ]
            }
        ),
    ]


@operation("POST", "/queues/{queue}/groups/{group}/seek", Right.MANAGE, "groups")
async def seek(call: Call, queue: QueueName, group: GroupName, body: Seeking) -> Sought:
    """Move a group to another place of the queue, to read again or to skip; the position it goes on after."""
    return Sought(await (await call.known(queue)).seek(group, _target(body.to)))


def _target(to: int | str) -> int | datetime | str:
    if isinstance(to, int) or to in ("start", "end"):
        return to
    try:
        return msgspec.convert(to, datetime)
    except msgspec.ValidationError:
        raise InvalidInput(
            f"seek goes to a position, a time such as 2026-01-31T12:00:00Z, 'start' or 'end', not {shown(to)}"
        ) from None


# -- the store -------------------------------------------------------------------------------------------------------


@operation("POST", "/sweep", Right.OPERATE, "store")
async def sweep(call: Call) -> SweepReport:
    """One maintenance pass: reclaim lapsed leases, promote due messages, expire late ones, fire schedules, trim."""
    return await call.store.sweep()


@operation("GET", "/me", Right.NOTHING, "store")
async def me(call: Call) -> Me:
    """Who the server takes the client for, and what they may do."""
    user = call.identity.user
    rights = sorted(right.value for right in user.rights if right is not Right.NOTHING)
    return Me(user.name, call.identity.role, rights, list(user.queues))
