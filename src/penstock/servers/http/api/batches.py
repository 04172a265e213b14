"""Batches: open with an end message, start, cancel, look."""

from __future__ import annotations

from penstock.domain.message import draft
from penstock.domain.names import check_name
from penstock.domain.observations import BatchInfo
from penstock.servers.access import Right
from penstock.servers.http.api.contents import NewContent
from penstock.servers.http.api.documents import Batches
from penstock.servers.http.api.inputs import Input
from penstock.servers.http.api.operations import Call, operation
from penstock.servers.http.api.values import BatchName, QueueName

TAG = "batches"


class Opening(Input, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`end` is sent when all members are finished, `abort` when the batch was cancelled; each exactly once."""

    end: NewContent | None = None
    abort: NewContent | None = None


@operation("GET", "/queues/{queue}/batches", Right.LOOK, TAG)
async def list_batches(call: Call, queue: QueueName) -> Batches:
    """The batches of a queue, newest first."""
    return Batches(await (await call.known(queue)).batches())


@operation("GET", "/queues/{queue}/batches/{batch}", Right.LOOK, TAG)
async def show_batch(call: Call, queue: QueueName, batch: BatchName) -> BatchInfo:
    """The newest batch of that name."""
    return await (await call.known(queue)).batch(batch).info()


@operation("PUT", "/queues/{queue}/batches/{batch}", Right.OPERATE, TAG)
async def open_batch(call: Call, queue: QueueName, batch: BatchName, body: Opening) -> BatchInfo:
    """Make a batch unless one is open or running, and set its end or abort message. Sends with its name fill it."""
    check_name("batch", batch)
    source = call.queue(queue)
    end = None if body.end is None else draft(body.end.outgoing())
    abort = None if body.abort is None else draft(body.abort.outgoing())
    return await source._run(lambda: source.engine.batch_open(queue, batch, end, abort))


@operation("POST", "/queues/{queue}/batches/{batch}/start", Right.OPERATE, TAG)
async def start_batch(call: Call, queue: QueueName, batch: BatchName) -> BatchInfo:
    """Make its messages ready. An empty batch ends at once."""
    return await (await call.known(queue)).batch(batch).start()


@operation("POST", "/queues/{queue}/batches/{batch}/cancel", Right.OPERATE, TAG)
async def cancel_batch(call: Call, queue: QueueName, batch: BatchName) -> BatchInfo:
    """Cancel what is not in flight; the abort message follows when the rest has ended."""
    return await (await call.known(queue)).batch(batch).cancel()
