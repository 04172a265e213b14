"""Consumers: register, heartbeat, deregister, list."""

from __future__ import annotations

from typing import ClassVar

from penstock.client.aio.queue import AsyncQueue
from penstock.domain.results import ConsumerInfo, processes_of
from penstock.domain.validation import check_name
from penstock.servers.http.api.documents import Consumers, Count, Processes
from penstock.servers.http.api.inputs import Input
from penstock.servers.http.api.operations import ApiCall, operation
from penstock.servers.http.api.values import ConsumerName, GroupName, HeartbeatCount, Misses, PositiveSeconds, QueueName
from penstock.servers.permissions import Needs

TAG = "consumers"


class Registering(Input, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """More than `max_missed_heartbeats` lose the place; every `heartbeats_per_sweep` heartbeats the consumer removes
    others of its group that have missed more."""

    wholes: ClassVar[tuple[str, ...]] = ("max_missed_heartbeats", "heartbeats_per_sweep")

    group: GroupName | None = None
    heartbeat_seconds: PositiveSeconds = 5
    max_missed_heartbeats: Misses = 1
    heartbeats_per_sweep: HeartbeatCount = 10


class Beating(Input, frozen=True, kw_only=True, forbid_unknown_fields=True):
    group: GroupName | None = None


@operation("GET", "/consumers", Needs.READ_CONSUMERS, TAG)
async def list_consumers(call: ApiCall) -> Consumers:
    """Registered consumers of all queues that the user may look at, in birth order."""
    return Consumers(
        [one for one in await call.store.consumers() if call.identity.may(Needs.READ_CONSUMERS, one.queue)]
    )


@operation("GET", "/processes", Needs.READ_CONSUMERS, TAG)
async def list_processes(call: ApiCall) -> Processes:
    """Consumers by process: all registrations under one name, with the queues that the user may look at."""
    found = [one for one in await call.store.consumers() if call.identity.may(Needs.READ_CONSUMERS, one.queue)]
    return Processes(processes_of(found))


@operation("GET", "/queues/{queue}/consumers", Needs.READ_CONSUMERS, TAG)
async def list_queue_consumers(call: ApiCall, queue: QueueName) -> Consumers:
    """Registered consumers of a queue, in birth order."""
    return Consumers(await (await call.known(queue)).consumers())


@operation("PUT", "/queues/{queue}/consumers/{consumer}", Needs.REGISTER_CONSUMER, TAG)
async def register(call: ApiCall, queue: QueueName, consumer: ConsumerName, body: Registering) -> ConsumerInfo:
    """Register a consumer in birth order; a registered one keeps its place."""
    check_name("consumer", consumer)
    source = call.queue(queue)
    made = await source.register(
        consumer,
        group=body.group,
        heartbeat_seconds=body.heartbeat_seconds,
        max_missed_heartbeats=body.max_missed_heartbeats,
        heartbeats_per_sweep=body.heartbeats_per_sweep,
    )
    return made.info


@operation("POST", "/queues/{queue}/consumers/{consumer}/heartbeat", Needs.REGISTER_CONSUMER, TAG)
async def heartbeat(call: ApiCall, queue: QueueName, consumer: ConsumerName, body: Beating) -> ConsumerInfo:
    """Send a heartbeat. 409 if the consumer was removed: register again."""
    source, group = await _place(call, queue, consumer, body.group)
    return await source.executor.write(lambda: source.engine.heartbeat(queue, group, consumer))


@operation("DELETE", "/queues/{queue}/consumers/{consumer}", Needs.REGISTER_CONSUMER, TAG)
async def deregister(
    call: ApiCall, queue: QueueName, consumer: ConsumerName, *, group: GroupName | None = None
) -> Count:
    """Deregister a consumer and release its leases at once. Returns how many messages were released."""
    source, reader = await _place(call, queue, consumer, group)
    return Count(await source.executor.write(lambda: source.engine.deregister(queue, reader, consumer)))


async def _place(call: ApiCall, queue: str, consumer: str, group: str | None) -> tuple[AsyncQueue, str]:
    check_name("consumer", consumer)
    source = await call.known(queue)
    return source, await source.group_name(group)
