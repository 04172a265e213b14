"""Deliveries: receive, list leases, settle, extend."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, cast

import msgspec
from msgspec import Meta
from starlette.requests import ClientDisconnect

from penstock.client.aio.call import Operation
from penstock.client.aio.executor import AsyncExecutor
from penstock.client.aio.queue import AsyncQueue
from penstock.client.settlements import Held
from penstock.client.view import DeliveryView
from penstock.domain.errors import InvalidInput, LeaseLost, NotFound, OutOfOrder, PenstockError
from penstock.domain.identity import check_id
from penstock.domain.settlement import Ack, Nak, Reject, Reschedule, Settled, Settlement, lease_lost_error
from penstock.domain.timestamps import to_time
from penstock.domain.validation import check_name
from penstock.engines.contract import Receipt
from penstock.servers.http.api.documents import (
    Deliveries,
    Extended,
    Leases,
    SettledDocument,
    Settlements,
    delivery_document,
)
from penstock.servers.http.api.inputs import Input
from penstock.servers.http.api.operations import ApiCall, operation
from penstock.servers.http.api.values import (
    MAX_LIMIT,
    Code,
    ConsumerName,
    Delay,
    GroupName,
    Limit,
    MessageId,
    Position,
    PositiveSeconds,
    QueueName,
    Reason,
    Token,
    Wait,
)
from penstock.servers.http.disconnect import is_disconnected, until_disconnect
from penstock.servers.http.problems import Problem
from penstock.servers.permissions import Needs
from penstock.servers.shared_receive import ReceiveRequest

TAG = "deliveries"
# Errors of one settlement among many; a single settlement raises them.
REFUSALS: dict[str, type[PenstockError]] = {
    kind.__name__: kind for kind in (LeaseLost, NotFound, OutOfOrder, InvalidInput)
}


class Receiving(Input, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a receive. Without `lease_seconds` the queue's policy applies."""

    wholes: ClassVar[tuple[str, ...]] = ("limit",)

    limit: Limit = 1
    group: GroupName | None = None
    consumer: ConsumerName | None = None
    lease_seconds: PositiveSeconds | None = None
    wait_seconds: Wait = 0


@operation("POST", "/queues/{queue}/receive", Needs.RECEIVE, TAG)
async def receive(call: ApiCall, queue: QueueName, body: Receiving) -> Deliveries:
    """Take messages under a lease, best priority first.

    With `wait_seconds` the response waits for the first message, at most http.max_wait_seconds. No message is delivered
    to a client that disconnects meanwhile. A queue that does not exist is not created: 404.
    """
    source = await call.known(queue)
    group = None if body.group is None else check_name("group", body.group)
    consumer = _consumer(call) if body.consumer is None else check_name("consumer", body.consumer)
    operation = call.state.receives.operation(queue, group, body.lease_seconds)
    receive = partial(_receive, call.store.executor, operation, ReceiveRequest(consumer, body.limit))
    seconds = min(body.wait_seconds, call.state.settings.max_wait_seconds)
    receipt = await receive()
    if not receipt.rows and seconds:
        waiting = _receive_later(source, receive, receipt, seconds)
        receipt = await until_disconnect(call.request, waiting, call.store.executor.release, receipt)
    elif receipt.rows and await is_disconnected(call.request):
        call.store.executor.release(receipt)
        raise ClientDisconnect
    if receipt.rows and not call.is_still_allowed(Needs.RECEIVE, queue):
        call.store.executor.release(receipt)
        raise Problem(403, "the right to receive was taken away meanwhile", "Forbidden")
    return Deliveries([delivery_document(DeliveryView(row, receipt)) for row in receipt.rows])


async def _receive(executor: AsyncExecutor, operation: Operation, request: ReceiveRequest) -> Receipt:
    [[receipt]] = await executor.coalesce_or_discard(operation, [request], request.limit)
    return cast(Receipt, receipt)


async def _receive_later(
    source: AsyncQueue, receive: Callable[[], Awaitable[Receipt]], receipt: Receipt, seconds: float
) -> Receipt:
    ends = time.monotonic() + seconds
    while not receipt.rows and (left := ends - time.monotonic()) > 0:
        await source.wait_until_ready(receipt.group, left)
        receipt = await receive()
    return receipt


@operation("GET", "/queues/{queue}/leases", Needs.READ_LEASE_TOKENS, TAG)
async def leases(
    call: ApiCall,
    queue: QueueName,
    *,
    group: GroupName | None = None,
    id: MessageId | None = None,
    consumer: ConsumerName | None = None,
    after: Position = 0,
    limit: Limit = 100,
) -> Leases:
    """Leased messages with their tokens, to settle them in place of a consumer that died.

    `after` is the position of the last one seen.
    """
    source = await call.known(queue)
    reader = await source.existing_group(group)
    ids = None if id is None else [check_id(id)]
    holder = None if consumer is None else check_name("consumer", consumer)
    found = await source.executor.read(
        lambda: source.engine.leases(queue, reader, ids=ids, consumer=holder, after=after, limit=limit)
    )
    return Leases(reader, found)


def _consumer(call: ApiCall) -> str:
    return "http" if call.identity.via == "open" else call.identity.name


# -- settling --------------------------------------------------------------------------------------------------------


class Lease(Input, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Identifies a delivery. A `position` must be that of the message."""

    wholes: ClassVar[tuple[str, ...]] = ("token", "position")

    token: Token
    group: GroupName | None = None
    position: Position | None = None


class Acking(Lease, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Reason | None = None


class Naking(Lease, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Without `delay_seconds` the queue's backoff applies."""

    reason: Reason | None = None
    delay_seconds: Delay | None = None
    code: Code | None = None


class Rejecting(Lease, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Reason | None = None
    code: Code | None = None


class Rescheduling(Lease, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Reason | None = None
    delay_seconds: Delay = 3600


class Extending(Lease, frozen=True, kw_only=True, forbid_unknown_fields=True):
    seconds: PositiveSeconds


class Settling(Naking, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One item of a list; a reschedule without `delay_seconds` delays by an hour."""

    id: MessageId
    action: Literal["ack", "nak", "reject", "reschedule"]


class SettlingMany(Input, frozen=True, kw_only=True, forbid_unknown_fields=True):
    settlements: Annotated[list[Settling], Meta(max_length=MAX_LIMIT)]


@operation("POST", "/queues/{queue}/messages/{id}/ack", Needs.SETTLE, TAG)
async def ack(call: ApiCall, queue: QueueName, id: MessageId, body: Acking) -> SettledDocument:
    """Acknowledge: the message succeeded. A lost lease answers 409, as for the other settlements."""
    return await _settle_one(call, queue, Settling(id=id, action="ack", **_fields(body)))


@operation("POST", "/queues/{queue}/messages/{id}/nak", Needs.SETTLE, TAG)
async def nak(call: ApiCall, queue: QueueName, id: MessageId, body: Naking) -> SettledDocument:
    """Negatively acknowledge: retry after the queue's backoff or a given delay."""
    return await _settle_one(call, queue, Settling(id=id, action="nak", **_fields(body)))


@operation("POST", "/queues/{queue}/messages/{id}/reject", Needs.SETTLE, TAG)
async def reject(call: ApiCall, queue: QueueName, id: MessageId, body: Rejecting) -> SettledDocument:
    """Reject: the message becomes a dead letter at once."""
    return await _settle_one(call, queue, Settling(id=id, action="reject", **_fields(body)))


@operation("POST", "/queues/{queue}/messages/{id}/reschedule", Needs.SETTLE, TAG)
async def reschedule(call: ApiCall, queue: QueueName, id: MessageId, body: Rescheduling) -> SettledDocument:
    """Reschedule: deliver again after a delay, with attempts reset."""
    return await _settle_one(call, queue, Settling(id=id, action="reschedule", **_fields(body)))


@operation("POST", "/queues/{queue}/messages/{id}/extend", Needs.SETTLE, TAG)
async def extend(call: ApiCall, queue: QueueName, id: MessageId, body: Extending) -> Extended:
    """Extend a lease to the given number of seconds from now."""
    source = await call.known(queue)
    (held,) = await _held(call, queue, [Settling(id=id, action="ack", **_lease(body))])
    if isinstance(held, PenstockError):
        raise held
    ends = await source.executor.write(
        lambda: source.engine.extend(queue, held.group, [(held.token, held.position)], body.seconds)
    )
    if ends[0] is None:
        raise lease_lost_error(held.token, held.id)
    return Extended(held.id, to_time(ends[0]))


@operation("POST", "/queues/{queue}/settle", Needs.SETTLE, TAG)
async def settle(call: ApiCall, queue: QueueName, body: SettlingMany) -> Settlements:
    """Settle many deliveries in one transaction, with a result for each: a lost lease does not affect the others."""
    results = await _settle(call, queue, body.settlements)
    return Settlements(results)


def _fields(body: Lease) -> dict[str, Any]:
    return msgspec.structs.asdict(body)


def _lease(body: Lease) -> dict[str, Any]:
    return {name: getattr(body, name) for name in Lease.__struct_fields__}


async def _settle_one(call: ApiCall, queue: str, settling: Settling) -> SettledDocument:
    (result,) = await _settle(call, queue, [settling])
    if not result.ok:
        raise REFUSALS[str(result.error)](result.detail)
    return result


async def _settle(call: ApiCall, queue: str, several: Sequence[Settling]) -> list[SettledDocument]:
    source = await call.known(queue)
    found = await _held(call, queue, several)
    meant = [(place, one) for place, one in enumerate(found) if isinstance(one, Held)]
    settled = await source.settle([_settlement(several[place], held) for place, held in meant])
    outcomes: dict[int, Settled | PenstockError] = {
        place: one for place, one in enumerate(found) if isinstance(one, PenstockError)
    }
    outcomes.update((place, one) for (place, _), one in zip(meant, settled, strict=True))
    return [_settled_document(several[place].id, outcomes[place]) for place in range(len(several))]


async def _held(call: ApiCall, queue: str, several: Sequence[Settling]) -> list[Held | PenstockError]:
    """The deliveries, found in one query. The id gives the position of each: a token holds several messages,
    and a position that a client got wrong would settle another one of them."""
    engine = call.store.engine
    ids = [check_id(one.id) for one in several]
    for one in several:
        if one.group is not None:
            check_name("group", one.group)
        if one.code is not None:
            check_name("code", one.code)

    def find(message_id: str, one: Settling, group: str) -> Held | PenstockError:
        try:
            position = engine.position(queue, message_id)
        except (NotFound, InvalidInput) as error:
            return error
        if one.position not in (None, position):
            return InvalidInput(f"position {one.position} is not that of message {message_id}: nothing was changed")
        return Held(message_id, one.token, queue, group, position)

    def look() -> list[Held | PenstockError]:
        primary = engine.policy(queue).default_group
        return [find(message_id, one, one.group or primary) for message_id, one in zip(ids, several, strict=True)]

    return await call.store.executor.read(look)


def _settlement(settling: Settling, held: Held) -> Settlement:
    if settling.action == "ack":
        return Ack(held, settling.reason)
    if settling.action == "nak":
        return Nak(held, settling.reason, settling.delay_seconds, settling.code)
    if settling.action == "reject":
        return Reject(held, settling.reason, code=settling.code)
    return Reschedule(held, 3600 if settling.delay_seconds is None else settling.delay_seconds, settling.reason)


def _settled_document(message_id: str, result: Settled | PenstockError) -> SettledDocument:
    error = result if isinstance(result, PenstockError) else result.error
    if error is None:
        assert isinstance(result, Settled)
        return SettledDocument(message_id, True, result.state)
    return SettledDocument(message_id, False, None, type(error).__name__, str(error))
