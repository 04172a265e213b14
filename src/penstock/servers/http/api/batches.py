"""Batches: list, members, open with an end message, start, cancel."""

from __future__ import annotations

from penstock.domain.message import draft
from penstock.domain.results import BatchInfo, MessagePage
from penstock.domain.validation import check_name
from penstock.servers.http.api.documents import Batches
from penstock.servers.http.api.inputs import Input
from penstock.servers.http.api.new_message import NewContent
from penstock.servers.http.api.operations import ApiCall, operation
from penstock.servers.http.api.values import BatchName, Limit, Mark, QueueName
from penstock.servers.permissions import Needs

TAG = "batches"


class Opening(Input, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`end` is sent when all members are finished, `abort` when the batch was cancelled; each exactly once."""

    end: NewContent | None = None
    abort: NewContent | None = None


@operation("GET", "/queues/{queue}/batches", Needs.READ_BATCHES, TAG)
async def list_batches(call: ApiCall, queue: QueueName) -> Batches:
    """The batches of a queue, newest first."""
    return Batches(await (await call.known(queue)).batches())


@operation("GET", "/queues/{queue}/batches/{batch}", Needs.READ_BATCHES, TAG)
async def show_batch(call: ApiCall, queue: QueueName, batch: BatchName) -> BatchInfo:
    """The newest batch of that name."""
    return await (await call.known(queue)).batch(batch).info()


@operation("GET", "/queues/{queue}/batches/{batch}/members", Needs.READ_BATCHES, TAG)
async def list_members(
    call: ApiCall, queue: QueueName, batch: BatchName, *, limit: Limit = 100, after: Mark | None = None
) -> MessagePage:
    """The messages of the newest batch of that name, ended ones included, each with its state in the primary group.

    `after` is `next` of the page before.
    """
    page = await (await call.known(queue)).batch(batch).members(limit, after)
    # Members may be in queues that are not this user's to see.
    seen = [one for one in page.messages if call.identity.may(Needs.READ_MESSAGES, one.queue or queue)]
    return MessagePage(seen, page.next)


@operation("PUT", "/queues/{queue}/batches/{batch}", Needs.RUN_BATCHES, TAG)
async def open_batch(call: ApiCall, queue: QueueName, batch: BatchName, body: Opening) -> BatchInfo:
    """Open a batch unless one is open or running, and set its end or abort message. Sends may name it."""
    check_name("batch", batch)
    source = call.queue(queue)
    end = None if body.end is None else draft(body.end.outgoing())
    abort = None if body.abort is None else draft(body.abort.outgoing())
    return await source.executor.write(lambda: source.engine.batch_open(queue, batch, end, abort))


@operation("POST", "/queues/{queue}/batches/{batch}/start", Needs.RUN_BATCHES, TAG)
async def start_batch(call: ApiCall, queue: QueueName, batch: BatchName) -> BatchInfo:
    """Make its messages ready. An empty batch ends at once."""
    return await (await call.known(queue)).batch(batch).start()


@operation("POST", "/queues/{queue}/batches/{batch}/cancel", Needs.RUN_BATCHES, TAG)
async def cancel_batch(call: ApiCall, queue: QueueName, batch: BatchName) -> BatchInfo:
    """Cancel all messages that are not leased; the abort message is sent when the leased ones have ended."""
    return await (await call.known(queue)).batch(batch).cancel()
