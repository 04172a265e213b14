"""Messages: send one, many, a raw body or a stream of lines; peek, find, audit, explain, archive."""

from __future__ import annotations

import contextlib

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.client.aio.queue import AsyncQueue
from penstock.domain.errors import MessageFailed, PenstockError, StoreError, WaitTimeout
from penstock.domain.message import Draft, Outgoing, draft
from penstock.domain.refusals import no_address
from penstock.domain.results import AddressState, Explanation, MessagePage
from penstock.domain.validation import check_name, shown
from penstock.servers.http.api.decoder import Body
from penstock.servers.http.api.documents import (
    Archive,
    Audit,
    LineError,
    MessageDocument,
    Messages,
    Sent,
    SentMany,
    StreamReport,
    archived_document,
    message_document,
)
from penstock.servers.http.api.new_message import NewMessage, NewMessages
from penstock.servers.http.api.operations import ApiCall, operation
from penstock.servers.http.api.values import (
    Address,
    BatchName,
    Delay,
    GroupName,
    Limit,
    Mark,
    MessageId,
    MessageStateName,
    Name,
    Outcome,
    Position,
    PositiveSeconds,
    Priority,
    QueueName,
    Time,
    Wait,
)
from penstock.servers.http.bodies import FORM, JSON, content_type, lines_of
from penstock.servers.http.disconnect import until_disconnect
from penstock.servers.http.problems import Problem, problem_of
from penstock.servers.permissions import Needs

TAG = "messages"
BYTES = "application/octet-stream"
LINES = "application/x-ndjson"
# Lines and bytes per commit, and errors in the report.
CHUNK_LINES = 500
CHUNK_BYTES = 1 << 20
MAX_ERRORS = 100
HEADER_PREFIX = b"penstock-header-"


@operation("POST", "/queues/{queue}/messages", Needs.SEND, TAG, status=201)
async def send(call: ApiCall, queue: QueueName, body: NewMessage) -> Sent:
    """Send a message.

    A queue is created by its first use. The same id again is the same send: one message, with the same id.
    """
    (message_id,) = await call.state.store.executor.send(check_name("queue", queue), [_draft(call, body)])
    return Sent(message_id)


@operation("POST", "/queues/{queue}/messages/many", Needs.SEND, TAG, status=201)
async def send_many(call: ApiCall, queue: QueueName, body: NewMessages) -> SentMany:
    """Send several messages, all or none."""
    return SentMany(
        await call.store.executor.send(check_name("queue", queue), [_draft(call, one) for one in body.messages])
    )


def _draft(call: ApiCall, message: NewMessage) -> Draft:
    """Sending to the batch of another queue needs the right to send there: it delays that queue's end message."""
    if message.batch_queue is not None:
        call.check(Needs.SEND, message.batch_queue)
    return message.draft()


@operation("POST", "/queues/{queue}/messages/raw", Needs.SEND, TAG, status=201, media_type=BYTES)
async def send_raw(
    call: ApiCall,
    queue: QueueName,
    *,
    id: MessageId | None = None,
    priority: Priority = 0,
    delay_seconds: Delay | None = None,
    ttl_seconds: PositiveSeconds | None = None,
    deadline_at: Time | None = None,
    address: Address | None = None,
    key: Name | None = None,
    created_by: Name = "system",
    batch: BatchName | None = None,
    batch_queue: QueueName | None = None,
) -> Sent:
    """Send the request body as the payload, with its content type.

    Headers of the request that begin with `Penstock-Header-` become headers of the message, in lower case.
    """
    kind = content_type(call.request)
    if kind == FORM:
        raise Problem(415, f"say what the body is, such as Content-Type: {BYTES}", "WrongContentType")
    outgoing = Outgoing(
        payload=await call.request.body(),
        content_type=call.request.headers.get("content-type") or None,
        id=id,
        priority=priority,
        delay_seconds=delay_seconds,
        ttl_seconds=ttl_seconds,
        deadline_at=deadline_at,
        address=address,
        key=key,
        headers=_message_headers(call.request),
        created_by=created_by,
    )
    if batch_queue is not None:
        call.check(Needs.SEND, batch_queue)
    (message_id,) = await call.store.executor.send(
        check_name("queue", queue), [draft(outgoing, batch, None, batch_queue)]
    )
    return Sent(message_id)


def _message_headers(request: Request) -> dict[str, str] | None:
    found = {
        name[len(HEADER_PREFIX) :].decode("latin-1"): value.decode("utf-8", "backslashreplace")
        for name, value in request.scope["headers"]
        if name.startswith(HEADER_PREFIX)
    }
    return found or None


# -- streams ---------------------------------------------------------------------------------------------------------


@operation("POST", "/queues/{queue}/messages/stream", Needs.SEND, TAG, media_type=LINES, is_streamed=True, also=(207,))
async def send_stream(call: ApiCall, queue: QueueName) -> StreamReport:
    """Send a message for each line of the body, however long it is.

    Lines are stored in chunks as the body arrives. An invalid line is skipped and reported with its number (207); the
    others are sent. To be able to send the whole stream again after a failure, give the messages ids.
    """
    kind = content_type(call.request)
    if kind not in (LINES, BYTES, "application/jsonl", "application/json-lines"):
        raise Problem(
            415, f"the body must be lines of JSON (Content-Type: {LINES}), not {shown(kind)}", "WrongContentType"
        )
    stream = _Stream(call, call.queue(queue))
    try:
        async for number, line in lines_of(call.request, call.state.settings.body_bytes):
            await stream.take(number, line)
        await stream.flush()
    except (Problem, StoreError) as error:
        raise stream.broken_off(error) from None
    report = stream.report()
    return Response(msgspec.json.encode(report), 207 if report.failed else 200, media_type=JSON)  # type: ignore[return-value]  # the report with a status of its own


class _Stream:
    """Sends lines in chunks: bounded memory, and many messages per commit."""

    _body = Body(NewMessage)

    def __init__(self, call: ApiCall, queue: AsyncQueue) -> None:
        self._call = call
        self._queue = queue
        self._waiting: list[tuple[int, Draft]] = []
        self._bytes = 0
        self._lines = 0
        self._sent = 0
        self._failed = 0
        self._errors: list[LineError] = []

    async def take(self, number: int, line: bytes) -> None:
        self._lines += 1
        try:
            self._waiting.append((number, _draft(self._call, self._body.decode(line, f"line {number}"))))
        except (Problem, PenstockError) as error:
            self._note(number, error)
        self._bytes += len(line)
        if len(self._waiting) >= CHUNK_LINES or self._bytes >= CHUNK_BYTES:
            await self.flush()

    async def flush(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        if not waiting:
            return
        try:
            await self._queue.executor.send(self._queue.name, [one for _, one in waiting])
            self._sent += len(waiting)
        except StoreError:
            raise
        except PenstockError:
            # The queue refuses one of them: send the others.
            for number, one in waiting:
                await self._send_one(number, one)

    async def _send_one(self, number: int, one: Draft) -> None:
        try:
            await self._queue.executor.send(self._queue.name, [one])
            self._sent += 1
        except StoreError:
            raise
        except PenstockError as error:
            self._note(number, error)

    def _note(self, number: int, error: Exception) -> None:
        self._failed += 1
        if len(self._errors) < MAX_ERRORS:
            problem = problem_of(error)
            self._errors.append(LineError(number, problem.kind, problem.detail))

    def report(self) -> StreamReport:
        return StreamReport(self._lines, self._sent, self._failed, self._errors)

    def broken_off(self, error: Exception) -> Problem:
        problem = problem_of(error)
        problem.detail = f"{problem.detail}; {self._sent} messages were sent before"
        problem.members.update(lines=self._lines, sent=self._sent, failed=self._failed)
        return problem


# -- reading ---------------------------------------------------------------------------------------------------------


@operation("GET", "/queues/{queue}/peek", Needs.READ_MESSAGES, TAG)
async def peek(call: ApiCall, queue: QueueName, *, limit: Limit = 10, group: GroupName | None = None) -> Messages:
    """The next messages in the order of receiving, without leasing them."""
    found = await (await call.known(queue)).peek(limit, group)
    return Messages([message_document(one) for one in found])


@operation("GET", "/queues/{queue}/messages", Needs.READ_MESSAGES, TAG)
async def messages(
    call: ApiCall,
    queue: QueueName,
    *,
    state: MessageStateName,
    group: GroupName | None = None,
    limit: Limit = 100,
    after: Mark | None = None,
) -> MessagePage:
    """Messages of a group in a state, without payloads: held ones by when they are due, ready ones in the order of
    receiving, leased ones by position, ended ones newest first. `after` is `next` of the page before."""
    source = await call.known(queue)
    reader = await source.existing_group(group)
    return await source.messages(state, group=reader, limit=limit, after=after)


@operation("GET", "/queues/{queue}/messages/{id}", Needs.READ_MESSAGES, TAG)
async def find(call: ApiCall, queue: QueueName, id: MessageId) -> MessageDocument:
    """One message, live or finished."""
    return message_document(await (await call.known(queue)).find(id))


@operation("GET", "/queues/{queue}/messages/{id}/payload", Needs.READ_MESSAGES, TAG)
async def payload(call: ApiCall, queue: QueueName, id: MessageId) -> bytes:
    """The payload, as a download that browsers do not render."""
    message = await (await call.known(queue)).find(id)
    headers = {
        "content-disposition": f'attachment; filename="{message.id}"',
        "penstock-content-type": message.content_type.encode("ascii", "backslashreplace").decode(),
    }
    return Response(message.payload, headers=headers, media_type=BYTES)  # type: ignore[return-value]  # bytes of their own type


@operation("GET", "/queues/{queue}/messages/{id}/audit", Needs.READ_MESSAGES, TAG)
async def audit(call: ApiCall, queue: QueueName, id: MessageId) -> Audit:
    """The audit trail of a message, in order, in all groups."""
    return Audit(await (await call.known(queue)).audit(id))


@operation("GET", "/queues/{queue}/messages/{id}/explain", Needs.READ_MESSAGES, TAG)
async def explain(call: ApiCall, queue: QueueName, id: MessageId, *, group: GroupName | None = None) -> Explanation:
    """The state of a message, the reason for it, and what to do about it."""
    return await (await call.known(queue)).explain(id, group)


@operation("GET", "/queues/{queue}/archive", Needs.READ_MESSAGES, TAG)
async def archive(
    call: ApiCall,
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


@operation("GET", "/queues/{queue}/addresses/{address}", Needs.READ_MESSAGES, TAG)
async def address(call: ApiCall, queue: QueueName, address: Address, *, wait_seconds: Wait = 0) -> AddressState:
    """The newest message of an address, and how it ended; `outcome` is null while it is live.

    With `wait_seconds` the answer waits for the end.
    """
    check_name("address", address)
    source = await call.known(queue)
    seconds = min(wait_seconds, call.state.settings.max_wait_seconds)
    state = await source.executor.read(lambda: source.engine.address(queue, address))
    if state is None:
        raise no_address(queue, address)
    if not seconds or state.outcome is not None:
        return state
    await until_disconnect(call.request, _until_ended(source, address, seconds), lambda _: None, None)
    return await source.executor.read(lambda: source.engine.ended(queue, state.id)) or state


async def _until_ended(queue: AsyncQueue, address: str, seconds: float) -> None:
    with contextlib.suppress(MessageFailed, WaitTimeout):
        await queue.wait(address, seconds)
