"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from penstock.cli.completion import complete_queue
from penstock.domain.errors import InvalidInput
from penstock.domain.lifecycle import DEAD_OUTCOMES
from penstock.domain.validation import nearest, seconds_of, shown


def whole_number(text: object) -> int:
    try:
        return int(str(text))
    except ValueError:
        raise typer.BadParameter(f"{shown(text)} is not a whole number") from None


def duration(text: object) -> float:
    try:
        return seconds_of(str(text))
    except InvalidInput as error:
        raise typer.BadParameter(str(error)) from None


def one_of(choices: Sequence[str], flag: str | None = None) -> Callable[[str], str]:
    """A parser that takes only these words. `flag` is for values that typer does not parse."""
    known = [str(choice) for choice in choices]

    def check(text: str) -> str:
        if text not in known:
            raise typer.BadParameter(
                f"{shown(text)} is none of {', '.join(known)}{nearest(text, known)}", param_hint=flag
            )
        return text

    return check


def zoned_time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{shown(text)} is not a time such as 2026-01-31T12:00:00Z") from None
    if time.tzinfo is None:
        raise typer.BadParameter(f"{shown(text)} has no time zone: add Z for UTC, or an offset such as +02:00")
    return time


def seconds_option(flag: str, help: str) -> Any:
    """An option that takes a duration: seconds, or a text such as 5m."""
    return typer.Option(flag, metavar="DURATION", parser=duration, help=help)


def count_option(flag: str, help: str, metavar: str = "N") -> Any:
    """An option that takes a whole number."""
    return typer.Option(flag, metavar=metavar, parser=whole_number, help=help)


QueueName = Annotated[
    str,
    typer.Argument(metavar="QUEUE", help="The name of the queue.", show_default=False, autocompletion=complete_queue),
]
QueueNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="QUEUE", help="Only these queues.", show_default=False, autocompletion=complete_queue),
]
MessageId = Annotated[str, typer.Argument(metavar="ID", help="The id of the message.", show_default=False)]
MessageIds = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Only these messages.", show_default=False)]
Payload = Annotated[
    str | None,
    typer.Argument(metavar="PAYLOAD", help="JSON, or - to read it from standard input.", show_default=False),
]
AsText = Annotated[bool, typer.Option("--text", help="The payload is plain text, not JSON.")]
AsBytes = Annotated[bool, typer.Option("--bytes", help="The payload is raw bytes, not JSON.")]
Group = Annotated[
    str | None, typer.Option("--group", metavar="NAME", help="The group; the queue's primary one if not given.")
]
Limit = Annotated[int, count_option("--limit", "At most this many.")]
Code = Annotated[str | None, typer.Option("--code", metavar="CODE", help="The error, as programs know it.")]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; kept in the audit trail.")]
Outcome = Annotated[
    str | None,
    typer.Option(
        "--outcome",
        metavar="OUTCOME",
        parser=one_of(DEAD_OUTCOMES),
        help=f"Only those that ended {', '.join(DEAD_OUTCOMES)}.",
    ),
]
HeartbeatSeconds = Annotated[
    float, seconds_option("--heartbeat-seconds", "Heartbeat interval; after two missed heartbeats others take over.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Priority = Annotated[int, count_option("--priority", "0 is served first.")]
TtlSeconds = Annotated[float | None, seconds_option("--ttl-seconds", "Never deliver it after this long.")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Ordered queues keep messages of a key in order.")
]
Headers = Annotated[
    list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="A header; may be given several times.")
]


def parse_headers(headers: list[str] | None) -> dict[str, str] | None:
    return parse_pairs(headers, "NAME=VALUE", "--header") if headers else None


def parse_pairs(texts: list[str], form: str, hint: str) -> dict[str, str]:
    parsed: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{shown(text)} is not {form}", param_hint=hint)
        if name in parsed:
            raise typer.BadParameter(f"{shown(name)} is given twice", param_hint=hint)
        parsed[name] = value
    return parsed
