"""send, peek, messages, batch members, audit, explain"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.batches import BatchName
from penstock.cli.format import cell, clock_time, duration, escaped, moment, preview, table
from penstock.cli.options import (
    AsBytes,
    AsText,
    Group,
    Headers,
    Key,
    Limit,
    MessageId,
    Payload,
    Priority,
    QueueName,
    TtlSeconds,
    one_of,
    parse_headers,
    seconds_option,
    zoned_time,
)
from penstock.cli.payloads import PayloadContent, read_content, read_lines
from penstock.cli.session import CliSession, known_group
from penstock.client.documents import with_payload
from penstock.client.queue import Queue
from penstock.domain.lifecycle import LIVE, State
from penstock.domain.message import SYSTEM, Message, Outgoing, drafts
from penstock.domain.results import AuditEntry, Explanation, MessagePage, MessageSummary
from penstock.domain.timestamps import to_time


def send(
    session: CliSession,
    queue: QueueName,
    payload: Payload = None,
    priority: Priority = 0,
    delay_seconds: Annotated[float | None, seconds_option("--delay-seconds", "Hold it back this long.")] = None,
    ttl_seconds: TtlSeconds = None,
    deadline_at: Annotated[
        datetime | None,
        typer.Option(
            "--deadline-at", metavar="TIME", parser=zoned_time, help="When it must be done: ISO 8601 with a zone."
        ),
    ] = None,
    address: Annotated[
        str | None, typer.Option("--address", metavar="NAME", help="At most one live message has this address.")
    ] = None,
    key: Key = None,
    header: Headers = None,
    id: Annotated[
        str | None, typer.Option("--id", metavar="UUID", help="Your own id: sending it again changes nothing.")
    ] = None,
    created_by: Annotated[
        str, typer.Option("--created-by", metavar="NAME", help="Who sends it, for the audit trail.")
    ] = SYSTEM,
    batch: Annotated[
        str | None, typer.Option("--batch", metavar="NAME", help="Hold it until this batch is started.")
    ] = None,
    batch_queue: Annotated[
        str | None, typer.Option("--batch-queue", metavar="QUEUE", help="The queue of the batch, if it is another.")
    ] = None,
    text: AsText = False,
    bytes: AsBytes = False,
    lines: Annotated[
        bool, typer.Option("--lines", help="One message per line of standard input (NDJSON), all or none.")
    ] = False,
) -> None:
    """Send a message and print its id.

    Example: penstock send orders '{"order": 1}' --priority 1
    """
    contents = _contents(payload, text, bytes, lines, single=(id, address))
    options = Outgoing(
        payload=b"",
        priority=priority,
        delay_seconds=delay_seconds,
        ttl_seconds=ttl_seconds,
        deadline_at=deadline_at,
        address=address,
        key=key,
        headers=parse_headers(header),
        id=id,
        created_by=created_by,
    )
    with session.store(create=True) as store:
        ids = _put(store.queue(queue), contents, options, batch, batch_queue)
    document = {"queue": queue, "ids": ids} if lines else {"queue": queue, "id": ids[0]}
    session.answer(document, *(Text(one) for one in ids))


def _contents(
    payload: str | None, text: bool, bytes: bool, lines: bool, single: tuple[str | None, str | None]
) -> list[PayloadContent]:
    if not lines:
        return [read_content(payload, text, bytes)]
    if payload not in (None, "-"):
        raise typer.BadParameter("--lines takes its payloads from standard input", param_hint="PAYLOAD")
    if text or bytes:
        raise typer.BadParameter("with --lines every line is JSON", param_hint="--lines")
    if any(value is not None for value in single):
        raise typer.BadParameter("--id and --address belong to one message", param_hint="--lines")
    return read_lines()


def _put(
    queue: Queue, contents: list[PayloadContent], options: Outgoing, batch: str | None, batch_queue: str | None
) -> list[str]:
    messages = [
        msgspec.structs.replace(options, payload=content.payload, content_type=content.content_type)
        for content in contents
    ]
    # A send must not open a new batch in place of one that has ended: nobody would start it.
    return queue.executor.send(queue.name, drafts(messages, batch, None, batch_queue))


def peek(session: CliSession, queue: QueueName, limit: Limit = 10, group: Group = None) -> None:
    """Show what would be received next, without receiving it.

    Example: penstock peek orders --limit 3
    """
    with session.queue(queue) as source:
        messages = source.peek(limit, group)
    session.answer([with_payload(message) for message in messages], _messages_view(messages))


def _messages_view(messages: list[Message]) -> Table | Text:
    if not messages:
        return Text("Nothing is ready.", style="dim")
    made = table(
        "id", "priority", "age", "payload", numbers=("priority", "age"), folds=("payload",), spares=("priority", "age")
    )
    now = datetime.now(UTC)
    for message in messages:
        age = duration(max(0, (now - message.created_at).total_seconds()))
        made.add_row(cell(message.id), cell(message.priority), age, preview(message.payload, 100))
    return made


After = Annotated[
    str | None, typer.Option("--after", metavar="MARK", help="Go on after a page: the mark that it ended with.")
]


def messages(
    session: CliSession,
    queue: QueueName,
    state: Annotated[
        str,
        typer.Option("--state", metavar="STATE", parser=one_of(tuple(State)), help=f"One of {', '.join(State)}."),
    ],
    group: Group = None,
    limit: Limit = 50,
    after: After = None,
) -> None:
    """List the messages of a queue in a state: held ones by when they are due, ended ones newest first.

    Example: penstock messages orders --state held
    """
    with session.queue(queue) as source:
        page = source.messages(state, group=known_group(source, group), limit=limit, after=after)
        now = to_time(source.engine.now())
    session.answer(page, _page_view(page, now))


def members(session: CliSession, queue: QueueName, batch: BatchName, limit: Limit = 50, after: After = None) -> None:
    """List the messages of a batch, ended ones included, with their states.

    Example: penstock batch members reports nightly
    """
    with session.queue(queue) as source:
        page = source.batch(batch).members(limit, after)
        now = to_time(source.engine.now())
    session.answer(page, _page_view(page, now))


def _page_view(page: MessagePage, now: datetime) -> RenderableType:
    if not page.messages and page.next is None:
        return Text("None.", style="dim")
    columns = ("message", "state", "sent", "since, until", "by: why")
    made = table(*columns, folds=("since, until", "by: why"), spares=("sent",))
    for one in page.messages:
        sent = duration(max(0.0, (now - one.created_at).total_seconds()))
        made.add_row(
            cell(one.id),
            Text(str(one.state), style=state_style(one.state)),
            Text.assemble(sent, " ago"),
            _times(one, now),
            cell(": ".join(part for part in (one.consumer, one.reason) if part)),
        )
    if page.next is None:
        return made
    return Lines(made, Text(f"There are more: --after {page.next}", style="dim"))


def _times(one: MessageSummary, now: datetime) -> Text:
    """How long a message has been running, or when it is due; and its batch."""
    parts: list[Text] = []
    if one.leased_at is not None:
        parts.append(Text.assemble("running ", duration(max(0.0, (now - one.leased_at).total_seconds()))))
    elif one.due_at is not None:
        left = (one.due_at - now).total_seconds()
        parts.append(Text.assemble("due in ", duration(left)) if left > 0 else Text("due"))
    elif one.state is State.HELD and one.batch is not None:
        parts.append(Text("not started"))
    if one.batch is not None:
        parts.append(Text.assemble("batch ", cell(one.batch)))
    return Text(", ").join(parts) if parts else cell(None)


def audit(session: CliSession, queue: QueueName, id: MessageId) -> None:
    """Show what happened to a message, step by step.

    Example: penstock audit orders 019a8c3e-7b2d-7abc-8def-00000000002a
    """
    with session.queue(queue) as source:
        trail = source.audit(id)
    session.answer(trail, timeline(trail))


def explain(session: CliSession, queue: QueueName, id: MessageId, group: Group = None) -> None:
    """Show the state of a message, the reason for it, and what to do about it.

    Example: penstock explain orders 019a8c3e-7b2d-7abc-8def-00000000002a
    """
    with session.queue(queue) as source:
        explanation = source.explain(id, group)
    session.answer(explanation, _explanation_view(explanation))


def timeline(trail: list[AuditEntry]) -> Table:
    """A row per audit entry, with the seconds since the previous one."""
    columns = ("at", "after", "event", "state", "group", "try", "by: why")
    made = table(*columns, numbers=("after", "try"), folds=("by: why",), spares=("group", "state", "after", "try"))
    made.title, made.title_style = f"{trail[0].at:%Y-%m-%d} UTC" if trail else "", "dim"
    before = None
    for step in trail:
        after = "" if before is None else f"+{(step.at - before.at).total_seconds():.3f}"
        at = clock_time(step.at) if step.at.date() == trail[0].at.date() else moment(step.at)
        made.add_row(
            at,
            Text(after, style="dim"),
            escaped(step.event),
            Text(step.state, style=state_style(step.state)),
            cell(step.group),
            str(step.attempt) if step.attempt else Text(""),
            escaped(f"{step.by}: {step.reason}" if step.reason else step.by),
        )
        before = step
    return made


def state_style(state: State) -> str:
    if state is State.SUCCEEDED:
        return "green"
    return "" if state in LIVE else "red"


def _explanation_view(explanation: Explanation) -> Text:
    shown = Text.assemble(
        escaped(explanation.id),
        " is ",
        Text(explanation.state, style=state_style(explanation.state) or "bold"),
        escaped(f" in group {explanation.group}: {explanation.because}"),
    )
    if explanation.advice:
        shown.append("\n").append_text(escaped(f"What to do: {explanation.advice}"))
    if explanation.trace:
        lines = [escaped(line, style="dim") for line in explanation.trace.rstrip().split("\n")]
        shown.append("\n\n").append_text(Text("\n").join(lines))
    return shown
