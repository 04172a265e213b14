"""batch list, show, open, set-end, set-abort, start, cancel"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.format import cell, plural, sentence, table
from penstock.cli.options import AsBytes, AsText, Headers, Payload, Priority, QueueName, Yes, parse_headers
from penstock.cli.payloads import read_content
from penstock.cli.session import CliSession
from penstock.client.batch import Batch
from penstock.client.queue import Queue
from penstock.domain.errors import Refused
from penstock.domain.message import Outgoing
from penstock.domain.results import BatchInfo
from penstock.domain.validation import check_name, shown

BatchName = Annotated[str, typer.Argument(metavar="BATCH", help="The name of the batch.", show_default=False)]


def list_batches(session: CliSession, queue: QueueName) -> None:
    """List the batches of a queue, newest first.

    Example: penstock batch list reports
    """
    with session.queue(queue) as source:
        batches = source.batches()
    session.answer(batches, batches_view(batches))


def show(session: CliSession, queue: QueueName, batch: BatchName) -> None:
    """Show how far a batch is.

    Example: penstock batch show reports nightly
    """
    with session.queue(queue) as source:
        info = source.batch(batch).info()
    session.answer(info, batches_view([info]))


def open_batch(session: CliSession, queue: QueueName, batch: BatchName) -> None:
    """Begin a batch: a new one when the last of that name has ended.

    Example: penstock batch open reports nightly
    """
    with session.store(create=True) as store:
        source = store.queue(queue)
        info = source.engine.batch_open(source.name, check_name("batch", batch), None, None)
    session.answer(info, batches_view([info]))


def set_end(
    session: CliSession,
    queue: QueueName,
    batch: BatchName,
    payload: Payload = None,
    priority: Priority = 0,
    header: Headers = None,
    text: AsText = False,
    bytes: AsBytes = False,
) -> None:
    """Choose the message that is sent once when all of the batch is finished.

    Example: penstock batch set-end reports nightly '{"all": "done"}'
    """
    outgoing = _outgoing(payload, priority, header, text, bytes)
    with session.store(create=True) as store:
        chosen = store.queue(queue).batch(batch)
        chosen.set_end(outgoing)
        info = chosen.info()
    session.answer(info, sentence(f"Batch {batch} has an end message."))


def set_abort(
    session: CliSession,
    queue: QueueName,
    batch: BatchName,
    payload: Payload = None,
    priority: Priority = 0,
    header: Headers = None,
    text: AsText = False,
    bytes: AsBytes = False,
) -> None:
    """Choose the message that is sent once when the batch was cancelled and nothing is in flight any more.

    Example: penstock batch set-abort reports nightly '{"all": "off"}'
    """
    outgoing = _outgoing(payload, priority, header, text, bytes)
    with session.store(create=True) as store:
        chosen = store.queue(queue).batch(batch)
        chosen.set_abort(outgoing)
        info = chosen.info()
    session.answer(info, sentence(f"Batch {batch} has an abort message."))


def start(session: CliSession, queue: QueueName, batch: BatchName) -> None:
    """Make the messages of a batch ready.

    Example: penstock batch start reports nightly
    """
    with session.queue(queue) as source:
        info = _known_batch(source, batch).start()
    session.answer(info, batches_view([info]))


def cancel(session: CliSession, queue: QueueName, batch: BatchName, yes: Yes = False) -> None:
    """Cancel what is left of a batch; what is in flight may still be settled.

    Example: penstock batch cancel reports nightly
    """
    with session.queue(queue) as source:
        chosen = _known_batch(source, batch)
        remaining = chosen.info().remaining
        if session.is_interactive and not yes and remaining:
            question = (
                f"Cancel {plural(remaining, 'message')} of batch {shown(batch)} in queue {shown(queue)} for good?"
            )
            if not session.confirm(question):
                raise Refused("nothing was cancelled")
        info = chosen.cancel()
    session.answer(info, batches_view([info]))


def batches_view(batches: list[BatchInfo]) -> Table | Text:
    if not batches:
        return Text("No batches.", style="dim")
    counts = ("total", "remaining", "finished", "cancelled")
    made = table("batch", "state", *counts, numbers=counts)
    for batch in batches:
        numbers = (batch.total, batch.remaining, batch.finished - batch.cancelled, batch.cancelled)
        made.add_row(cell(batch.name), cell(batch.state), *map(cell, numbers))
    return made


def _known_batch(queue: Queue, name: str) -> Batch:
    """Return a batch that exists: starting one by a mistyped name would open an empty batch and finish it silently."""
    batch = queue.batch(name)
    batch.info()
    return batch


def _outgoing(payload: str | None, priority: int, header: list[str] | None, text: bool, bytes: bool) -> Outgoing:
    content = read_content(payload, text, bytes)
    return Outgoing(
        payload=content.payload,
        content_type=content.content_type,
        priority=priority,
        headers=parse_headers(header),
    )
