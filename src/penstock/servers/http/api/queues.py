"""Queues: list, stats, policy, pause, seek, flush, delete."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

from msgspec import UNSET, UnsetType

from penstock.domain.policy import check_changes
from penstock.domain.refusals import no_group
from penstock.domain.results import SweepReport
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
from penstock.servers.http.api.operations import ApiCall, operation
from penstock.servers.http.api.policies import PolicyChanges, given_fields
from penstock.servers.http.api.values import GroupName, Position, QueueName, Time
from penstock.servers.permissions import Needs

TAG = "queues"


@operation("GET", "/queues", Needs.READ_QUEUES, TAG)
async def list_queues(call: ApiCall) -> Queues:
    """All queues that the user may look at, by name, with their policies and groups."""
    return Queues([info for info in await call.store.queues() if call.identity.may(Needs.READ_QUEUES, info.name)])


@operation("GET", "/queues/{queue}", Needs.READ_QUEUES, TAG)
async def show_queue(call: ApiCall, queue: QueueName) -> QueueDocument:
    """One queue: its policy, the stats of its groups, its consumers and batches."""
    engine = (await call.known(queue)).engine

    def look() -> QueueDocument:
        info = next(info for info in engine.queues() if info.name == queue)
        stats, consumers, batches = engine.stats(queue), engine.consumers(queue), engine.batches(queue)
        return QueueDocument(queue, info.created_at, info.policy, stats, consumers, batches)

    return await call.store.executor.read(look)


@operation("GET", "/queues/{queue}/stats", Needs.READ_QUEUES, TAG)
async def stats(call: ApiCall, queue: QueueName, *, group: GroupName | None = None) -> Groups:
    """Counts of every group, or of one, in one snapshot and without reading messages."""
    every = await (await call.known(queue)).stats()
    if group is None:
        return Groups(every)
    if group not in every:
        raise no_group(queue, group, every)
    return Groups({group: every[group]})


# -- policies --------------------------------------------------------------------------------------------------------


@operation("GET", "/queues/{queue}/policy", Needs.READ_POLICY, TAG)
async def policy(call: ApiCall, queue: QueueName) -> PolicyDocument:
    """The policy of a queue: settings for all its messages unless a send overrides them."""
    return PolicyDocument(queue, await (await call.known(queue)).policy())


@operation("PATCH", "/queues/{queue}/policy", Needs.SET_POLICY, TAG)
async def declare(call: ApiCall, queue: QueueName, body: PolicyChanges) -> PolicyDocument:
    """Set fields of a queue's policy; creates the queue if there is none."""
    changes = check_changes(given_fields(body))
    source = call.queue(queue)
    return PolicyDocument(queue, await source.executor.write(lambda: source.engine.declare(queue, changes)))


@operation("POST", "/queues/{queue}/pause", Needs.PAUSE_QUEUE, TAG)
async def pause(call: ApiCall, queue: QueueName) -> PolicyDocument:
    """Pause: receives return nothing until resume; sends and settlements go on."""
    return await _set_paused(call, queue, True)


@operation("POST", "/queues/{queue}/resume", Needs.PAUSE_QUEUE, TAG)
async def resume(call: ApiCall, queue: QueueName) -> PolicyDocument:
    """Resume a paused queue."""
    return await _set_paused(call, queue, False)


async def _set_paused(call: ApiCall, queue: str, paused: bool) -> PolicyDocument:
    source = await call.known(queue)
    return PolicyDocument(queue, await source.executor.write(lambda: source.engine.declare(queue, {"paused": paused})))


@operation("POST", "/queues/{queue}/flush", Needs.FLUSH, TAG)
async def flush(call: ApiCall, queue: QueueName) -> Count:
    """Remove every message; the policy stays. Returns how many."""
    return Count(await (await call.known(queue)).flush())


@operation("DELETE", "/queues/{queue}", Needs.DELETE_QUEUE, TAG)
async def delete_queue(call: ApiCall, queue: QueueName) -> Count:
    """Remove the queue itself, with its messages, groups, batches and policy. Returns how many messages.

    409 while a schedule sends to it or a consumer is registered: they would create it again.
    """
    count = await (await call.known(queue)).delete()
    call.state.queues_seen.pop(queue, None)
    return Count(count)


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


@operation("POST", "/queues/{queue}/groups/{group}/seek", Needs.SEEK, "groups")
async def seek(call: ApiCall, queue: QueueName, group: GroupName, body: Seeking) -> Sought:
    """Move a group's cursor, to receive messages again or to skip them. Returns the position of the cursor."""
    return Sought(await (await call.known(queue)).seek(group, body.target))


# -- the store -------------------------------------------------------------------------------------------------------


@operation("POST", "/sweep", Needs.SWEEP, "store")
async def sweep(call: ApiCall) -> SweepReport:
    """One maintenance pass: reclaim lapsed leases, promote due messages, expire late ones, fire schedules, trim."""
    return await call.store.sweep()


@operation("GET", "/me", Right.NOTHING, "store")
async def me(call: ApiCall) -> Me:
    """The authenticated user and its rights."""
    user = call.identity.user
    rights = sorted(right.value for right in user.rights if right is not Right.NOTHING)
    return Me(user.name, call.identity.role, rights, list(user.queues))
