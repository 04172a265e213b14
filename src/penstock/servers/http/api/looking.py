"""Look at messages: what comes next, one of them, its trail, and those that have ended."""

from __future__ import annotations

import contextlib

from starlette.responses import Response

from penstock.client.aio.queue import AsyncQueue
from penstock.domain.errors import MessageFailed, NotFound, WaitTimeout
from penstock.domain.names import check_name, shown
from penstock.domain.observations import AddressState, Explanation
from penstock.servers.access import Right
from penstock.servers.http.api.documents import (
    Archive,
    Audit,
    MessageDocument,
    Messages,
    archived_document,
    message_document,
)
from penstock.servers.http.api.operations import Call, operation
from penstock.servers.http.api.values import Address, GroupName, Limit, MessageId, Outcome, Position, QueueName, Wait
from penstock.servers.http.waiting import attended

TAG = "messages"
BYTES = "application/octet-stream"


@operation("GET", "/queues/{queue}/peek", Right.LOOK, TAG)
async def peek(call: Call, queue: QueueName, *, limit: Limit = 10, group: GroupName | None = None) -> Messages:
    """What would be received next, in that order, without receiving it."""
    found = await (await call.known(queue)).peek(limit, group)
    return Messages([message_document(one) for one in found])


@operation("GET", "/queues/{queue}/messages/{id}", Right.LOOK, TAG)
async def find(call: Call, queue: QueueName, id: MessageId) -> MessageDocument:
    """One message, wherever it is."""
    return message_document(await (await call.known(queue)).find(id))


@operation("GET", "/queues/{queue}/messages/{id}/payload", Right.LOOK, TAG)
async def payload(call: Call, queue: QueueName, id: MessageId) -> bytes:
    """The payload as it is. It is never shown by a browser, whatever it claims to be: a message is data."""
    message = await (await call.known(queue)).find(id)
    headers = {
        "content-disposition": f'attachment; filename="{message.id}"',
        "penstock-content-type": message.content_type.encode("ascii", "backslashreplace").decode(),
    }
    return Response(message.payload, headers=headers, media_type=BYTES)  # type: ignore[return-value]  # bytes of their own type


@operation("GET", "/queues/{queue}/messages/{id}/audit", Right.LOOK, TAG)
async def audit(call: Call, queue: QueueName, id: MessageId) -> Audit:
    """What happened to a message, in order, over all groups."""
    return Audit(await (await call.known(queue)).audit(id))


@operation("GET", "/queues/{queue}/messages/{id}/explain", Right.LOOK, TAG)
async def explain(call: Call, queue: QueueName, id: MessageId, *, group: GroupName | None = None) -> Explanation:
    """Where a message is, why it is not running, and what to do about it."""
    return await (await call.known(queue)).explain(id, group)


@operation("GET", "/queues/{queue}/archive", Right.LOOK, TAG)
async def archive(
    call: Call,
    queue: QueueName,
    *,
    limit: Limit = 100,
    group: GroupName | None = None,
    outcome: Outcome | None = None,
    before: Position | None = None,
) -> Archive:
    """Finished messages, latest first. `before` is the position of the last one seen."""
    found = await (await call.known(queue)).archive(limit, group, outcome, before)
    return Archive([archived_document(one) for one in found])


@operation("GET", "/queues/{queue}/addresses/{address}", Right.LOOK, TAG)
async def address(call: Call, queue: QueueName, address: Address, *, wait_seconds: Wait = 0) -> AddressState:
    """The newest message of an address, and how it ended; `outcome` is null while it is live.

    With `wait_seconds` the answer waits for the end.
    """
    check_name("address", address)
    source = await call.known(queue)
    seconds = min(wait_seconds, call.site.settings.max_wait_seconds)
    state = await source._read(lambda: source.engine.address(queue, address))
    if state is None:
        raise NotFound(f"queue {queue!r} never had a message with address {shown(address)}")
    if not seconds or state.outcome is not None:
        return state
    await attended(call.request, _until_ended(source, address, seconds), lambda _: None, None)
    return await source._read(lambda: source.engine.ended(queue, state.id)) or state


async def _until_ended(queue: AsyncQueue, address: str, seconds: float) -> None:
    with contextlib.suppress(MessageFailed, WaitTimeout):
        await queue.wait(address, seconds)
