"""Send: one, many, a bare body, a stream of lines."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.client.aio.queue import AsyncQueue
from penstock.domain.errors import PenstockError, StoreError
from penstock.domain.message import Draft, Outgoing, draft
from penstock.domain.names import shown
from penstock.servers.access import Right
from penstock.servers.http.answering import JSON
from penstock.servers.http.api.contents import NewMessage, NewMessages
from penstock.servers.http.api.decoding import Body
from penstock.servers.http.api.documents import LineError, Sent, SentMany, StreamReport
from penstock.servers.http.api.operations import Call, operation
from penstock.servers.http.api.values import (
    Address,
    BatchName,
    Delay,
    MessageId,
    Name,
    PositiveSeconds,
    Priority,
    QueueName,
    Time,
)
from penstock.servers.http.bodies import FORM, content_type, lines_of
from penstock.servers.http.problems import Problem, problem_of

TAG = "messages"
BYTES = "application/octet-stream"
LINES = "application/x-ndjson"
# Lines that are sent together, and errors that are told.
CHUNK_LINES = 500
CHUNK_BYTES = 1 << 20
MAX_ERRORS = 100
HEADER_PREFIX = b"penstock-header-"


@operation("POST", "/queues/{queue}/messages", Right.SEND, TAG, status=201)
async def send(call: Call, queue: QueueName, body: NewMessage) -> Sent:
    """Send a message.

    A queue is made by its first use. The same id again is the same send: one message, and the same id back.
    """
    (message_id,) = await call.queue(queue)._send([body.draft()], None)
    return Sent(message_id)


@operation("POST", "/queues/{queue}/messages/many", Right.SEND, TAG, status=201)
async def send_many(call: Call, queue: QueueName, body: NewMessages) -> SentMany:
    """Send several messages, all or none."""
    return SentMany(await call.queue(queue)._send([one.draft() for one in body.messages], None))


@operation("POST", "/queues/{queue}/messages/raw", Right.SEND, TAG, status=201, media_type=BYTES)
async def send_raw(
    call: Call,
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
) -> Sent:
    """Send the body as it is, with its content type.

    Headers of the request that begin with `Penstock-Header-` become headers of the message, in small letters.
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
    (message_id,) = await call.queue(queue)._send([draft(outgoing, batch)], None)
    return Sent(message_id)


def _message_headers(request: Request) -> dict[str, str] | None:
    found = {
        name[len(HEADER_PREFIX) :].decode("latin-1"): value.decode("utf-8", "backslashreplace")
        for name, value in request.scope["headers"]
        if name.startswith(HEADER_PREFIX)
    }
    return found or None


# -- streams ---------------------------------------------------------------------------------------------------------


@operation("POST", "/queues/{queue}/messages/stream", Right.SEND, TAG, media_type=LINES, is_streamed=True, also=(207,))
async def send_stream(call: Call, queue: QueueName) -> StreamReport:
    """Send a message for each line of the body, however long it is.

    Lines are stored in groups while the body comes in. A line that is wrong is left out and told with its number (207);
    the others are sent. To be able to send the whole stream again after a failure, give the messages ids.
    """
    kind = content_type(call.request)
    if kind not in (LINES, BYTES, "application/jsonl", "application/json-lines"):
        raise Problem(
            415, f"the body must be lines of JSON (Content-Type: {LINES}), not {shown(kind)}", "WrongContentType"
        )
    stream = _Stream(call.queue(queue))
    try:
        async for number, line in lines_of(call.request, call.site.settings.body_bytes):
            await stream.take(number, line)
        await stream.flush()
    except (Problem, StoreError) as error:
        raise stream.broken_off(error) from None
    report = stream.report()
    return Response(msgspec.json.encode(report), 207 if report.failed else 200, media_type=JSON)  # type: ignore[return-value]  # the report with a status of its own


class _Stream:
    """Sends lines in groups, so that memory is bounded and every commit is worth it."""

    _body = Body(NewMessage)

    def __init__(self, queue: AsyncQueue) -> None:
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
            self._waiting.append((number, self._body.decode(line, f"line {number}").draft()))
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
            await self._queue._send([one for _, one in waiting], None)
            self._sent += len(waiting)
        except StoreError:
            raise
        except PenstockError:
            # One of them is refused by what the queue holds or allows: the others must not suffer for it.
            for number, one in waiting:
                await self._send_one(number, one)

    async def _send_one(self, number: int, one: Draft) -> None:
        try:
            await self._queue._send([one], None)
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
