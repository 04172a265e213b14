"""Consumers: register, heartbeat, leave, list."""

from __future__ import annotations

from penstock.client.aio.queue import AsyncQueue
from penstock.domain.names import check_name
from penstock.domain.observations import ConsumerInfo
from penstock.servers.access import Right
from penstock.servers.http.api.documents import Consumers, Count
from penstock.servers.http.api.inputs import Input
from penstock.servers.http.api.operations import Call, operation
from penstock.servers.http.api.values import ConsumerName, GroupName, PositiveSeconds, QueueName

TAG = "consumers"


class Registering(Input, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two missed heartbeats lose the place."""

    group: GroupName | None = None
    heartbeat_seconds: PositiveSeconds = 5


class Beating(Input, frozen=True, kw_only=True, forbid_unknown_fields=True):
    group: GroupName | None = None


@operation("GET", "/consumers", Right.LOOK, TAG)
async def list_consumers(call: Call) -> Consumers:
    """Registered consumers of all queues that the user may look at, in birth order."""
    return Consumers([one for one in await call.store.consumers() if call.identity.may(Right.LOOK, one.queue)])


@operation("GET", "/queues/{queue}/consumers", Right.LOOK, TAG)
async def list_queue_consumers(call: Call, queue: QueueName) -> Consumers:
    """Registered consumers of a queue, in birth order."""
    return Consumers(await (await call.known(queue)).consumers())


@operation("PUT", "/queues/{queue}/consumers/{consumer}", Right.RECEIVE, TAG)
async def register(call: Call, queue: QueueName, consumer: ConsumerName, body: Registering) -> ConsumerInfo:
    """Take a place in the birth order of the living consumers, or keep the one it has."""
    check_name("consumer", consumer)
    source = call.queue(queue)
    made = await source.register(consumer, group=body.group, heartbeat_seconds=body.heartbeat_seconds)
    return made.info


@operation("POST", "/queues/{queue}/consumers/{consumer}/heartbeat", Right.RECEIVE, TAG)
async def heartbeat(call: Call, queue: QueueName, consumer: ConsumerName, body: Beating) -> ConsumerInfo:
    """Stay alive. 409 when it is too late: register again."""
    source, group = await _place(call, queue, consumer, body.group)
    return await source._run(lambda: source.engine.heartbeat(queue, group, consumer))


@operation("DELETE", "/queues/{queue}/consumers/{consumer}", Right.RECEIVE, TAG)
async def deregister(call: Call, queue: QueueName, consumer: ConsumerName, *, group: GroupName | None = None) -> Count:
    """Leave, and end the leases held under this name at once; counts the messages let go."""
    source, reader = await _place(call, queue, consumer, group)
    return Count(await source._run(lambda: source.engine.deregister(queue, reader, consumer)))


async def _place(call: Call, queue: str, consumer: str, group: str | None) -> tuple[AsyncQueue, str]:
    check_name("consumer", consumer)
    source = await call.known(queue)
    return source, await source._group(group)
