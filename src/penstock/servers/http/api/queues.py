"""Queues: list, numbers, policy, pause, seek, flush."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

from msgspec import UNSET, UnsetType

from penstock.domain.errors import NotFound
from penstock.domain.names import nearest, shown
from penstock.domain.observations import SweepReport
from penstock.domain.policy import check_changes
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
from penstock.servers.http.api.inputs import Input
from penstock.servers.http.api.operations import Call, operation
from penstock.servers.http.api.policies import PolicyChanges
from penstock.servers.http.api.values import GroupName, Position, QueueName, Time

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


@operation("GET", "/queues/{queue}/policy", Right.LOOK, TAG)
async def policy(call: Call, queue: QueueName) -> PolicyDocument:
    """What is true for all messages of a queue unless a send says otherwise."""
    return PolicyDocument(queue, await (await call.known(queue)).policy())


@operation("PATCH", "/queues/{queue}/policy", Right.MANAGE, TAG)
async def declare(call: Call, queue: QueueName, body: PolicyChanges) -> PolicyDocument:
    """Set fields of a queue's policy, and make the queue if it is new."""
    changes = check_changes(body.given())
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


class Seeking(Input, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A position, a time, or an end of the log."""

    either: ClassVar[tuple[str, ...]] = ("position", "time", "edge")
    wholes: ClassVar[tuple[str, ...]] = ("position",)

    position: Position | UnsetType = UNSET
    time: Time | UnsetType = UNSET
    edge: Literal["start", "end"] | UnsetType = UNSET

    @property
    def target(self) -> int | datetime | str:
        (target,) = [one for one in (self.position, self.time, self.edge) if one is not UNSET]
        return target


@operation("POST", "/queues/{queue}/groups/{group}/seek", Right.MANAGE, "groups")
async def seek(call: Call, queue: QueueName, group: GroupName, body: Seeking) -> Sought:
    """Move a group to another place of the queue, to read again or to skip; the position it goes on after."""
    return Sought(await (await call.known(queue)).seek(group, body.target))


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
