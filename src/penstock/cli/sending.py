"""send"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from penstock.cli.options import (
    AsBytes,
    AsText,
    Headers,
    Key,
    Payload,
    Priority,
    QueueName,
    TtlSeconds,
    parse_headers,
    seconds_option,
    zoned_time,
)
from penstock.cli.payloads import Content, read_content, read_lines
from penstock.cli.session import Session
from penstock.client.queue import Queue
from penstock.domain.message import SYSTEM, Outgoing, drafts


def send(
    session: Session,
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
    text: AsText = False,
    bytes: AsBytes = False,
    lines: Annotated[
        bool, typer.Option("--lines", help="One message per line of standard input (NDJSON), all or none.")
    ] = False,
) -> None:
    """Put a message into a queue and print its id.

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
        ids = _put(store.queue(queue), contents, options, batch)
    document = {"queue": queue, "ids": ids} if lines else {"queue": queue, "id": ids[0]}
    session.answer(document, *(Text(one) for one in ids))


def _contents(
    payload: str | None, text: bool, bytes: bool, lines: bool, single: tuple[str | None, str | None]
) -> list[Content]:
    if not lines:
        return [read_content(payload, text, bytes)]
    if payload not in (None, "-"):
        raise typer.BadParameter("--lines takes its payloads from standard input", param_hint="PAYLOAD")
    if text or bytes:
        raise typer.BadParameter("with --lines every line is JSON", param_hint="--lines")
    if any(value is not None for value in single):
        raise typer.BadParameter("--id and --address belong to one message", param_hint="--lines")
    return read_lines()


def _put(queue: Queue, contents: list[Content], options: Outgoing, batch: str | None) -> list[str]:
    messages = [
        msgspec.structs.replace(options, payload=content.payload, content_type=content.content_type)
        for content in contents
    ]
    # A batch that has ended is not begun anew by a send: nobody would start it.
    return queue._send(drafts(messages, batch), None)
