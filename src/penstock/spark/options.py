"""Options of `format("penstock")`, checked before any work starts."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime

import msgspec

from penstock.client.connection import absolute_url
from penstock.domain.errors import InvalidInput, InvalidUrl
from penstock.domain.validation import check_name, from_time, nearest, shown
from penstock.engines.contract import Mark, Table
from penstock.engines.tables import check_columns, check_table, columns_of

URL_VARIABLE = "PENSTOCK_URL"
VARIABLE = "env:"
READING = (
    "url",
    "queue",
    "table",
    "group",
    "startingPosition",
    "endingPosition",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "columns",
    "includeHeaders",
    "failOnDataLoss",
)
WRITING = ("url", "queue", "ledger", "batch", "contentType")
# Added by Spark to the options of a stream.
SPARKS_OWN = ("checkpointlocation",)
# Added by Spark to the options of a catalog table.
OF_TABLE = "provider"


class Position(msgspec.Struct, frozen=True):
    """Where reading starts or ends: a word (`group`, `start`, `end`), a time, or a mark for each queue."""

    word: str | None = None
    at: int | None = None
    marks: dict[str, Mark] | None = None


class ReadOptions(msgspec.Struct, frozen=True):
    url: str
    queue: str
    table: Table
    columns: tuple[str, ...]
    group: str | None
    start: Position
    end: Position
    max_rows: int | None
    max_bytes: int | None
    min_partitions: int | None
    fail_on_data_loss: bool


class WriteOptions(msgspec.Struct, frozen=True):
    url: str
    queue: str
    ledger: str | None
    batch: str
    content_type: str | None


def read_options(given: Mapping[str, str]) -> ReadOptions:
    options = _known(given, READING, "reading")
    table = check_table(options.get("table", "messages"))
    group = None if options.get("group") is None else check_name("group", options["group"])
    return ReadOptions(
        url=store_url(options.get("url")),
        queue=_queue(options),
        table=table,
        columns=_columns(
            table, options.get("columns"), _flag("includeHeaders", options.get("includeHeaders", "false"))
        ),
        group=group,
        start=_start(options.get("startingPosition"), group, table),
        end=_end(options.get("endingPosition"), table),
        max_rows=_count(options, "maxRowsPerTrigger"),
        max_bytes=_count(options, "maxBytesPerTrigger"),
        min_partitions=_count(options, "minPartitions"),
        fail_on_data_loss=_flag("failOnDataLoss", options.get("failOnDataLoss", "true")),
    )


def write_options(given: Mapping[str, str]) -> WriteOptions:
    options = _known(given, WRITING, "writing")
    ledger = options.get("ledger")
    if "batch" in options and ledger is None:
        raise InvalidInput("option batch numbers what was written under a ledger: give ledger too")
    content_type = options.get("contentType")
    return WriteOptions(
        url=store_url(options.get("url")),
        queue=check_name("queue", _queue(options)),
        ledger=None if ledger is None else check_name("ledger", ledger),
        batch=check_name("batch", options.get("batch", "0")),
        content_type=None if content_type is None else check_name("contentType", content_type),
    )


def store_url(given: str | None) -> str:
    """The URL given, or read from an environment variable: `env:NAME`, by default PENSTOCK_URL."""
    given = given or f"{VARIABLE}{URL_VARIABLE}"
    if not given.startswith(VARIABLE):
        return reachable_url(given)
    variable = given.removeprefix(VARIABLE)
    url = os.environ.get(variable)
    if not url:
        raise InvalidUrl(
            f"no store: the environment variable {shown(variable)} is not set where Spark's driver runs; set it before "
            'the session starts, or give option("url", "sqlite:////var/app.db")'
        )
    return reachable_url(url)


def reachable_url(url: str) -> str:
    """A URL that processes with another working directory can open."""
    if url.endswith("/:memory:"):
        raise InvalidUrl(f"{url} lives in the memory of one process, and Spark has several: use a file")
    return absolute_url(url)


def _known(given: Mapping[str, str], names: tuple[str, ...], doing: str) -> dict[str, str]:
    """Check names and restore their spelling: Spark options are case-insensitive."""
    if OF_TABLE in given:
        raise InvalidInput(
            "Spark does not pass the options of a table to its readers: use create temporary view … using penstock"
        )
    spelled = {name.lower(): name for name in names}
    options = {}
    for name, value in given.items():
        if name.lower() in SPARKS_OWN:
            continue
        if name.lower() not in spelled:
            close = nearest(name.lower(), spelled)
            hint = "".join(
                close.replace(f"'{lower}'", f"'{name}'") for lower, name in spelled.items() if f"'{lower}'" in close
            )
            raise InvalidInput(f"there is no option {shown(name)} for {doing}: there are {', '.join(names)}{hint}")
        options[spelled[name.lower()]] = value
    return options


def _queue(options: Mapping[str, str]) -> str:
    queue = options.get("queue")
    if not queue:
        raise InvalidInput('which queue? Give option("queue", "orders")')
    return queue


def _columns(table: Table, given: str | None, include_headers: bool) -> tuple[str, ...]:
    if given is None:
        return tuple(name for name in columns_of(table) if name != "headers" or include_headers)
    names = [name.strip() for name in given.split(",")]
    if include_headers and "headers" not in names:
        names.append("headers")
    return check_columns(table, names)


def _start(given: str | None, group: str | None, table: Table) -> Position:
    if given is None:
        return Position(word="start" if group is None else "group")
    position = _position("startingPosition", given, ("group", "start", "end"), table)
    if position.word == "group" and group is None:
        raise InvalidInput("startingPosition group begins where a group stands: give option group too")
    return position


def _end(given: str | None, table: Table) -> Position:
    return Position(word="end") if given is None else _position("endingPosition", given, ("end",), table)


def _position(option: str, given: str, words: tuple[str, ...], table: Table) -> Position:
    text = given.strip()
    if text.lower() in words:
        return Position(word=text.lower())
    if text.startswith("{"):
        return Position(marks=_marks(option, text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"{option} {shown(given)} is none of {', '.join(words)}, no time such as 2026-11-15T09:30:00Z and no marks "
            f'such as {{"orders": 17}}{nearest(text, words)}'
        ) from None
    if moment.tzinfo is None:
        raise InvalidInput(f"{option} {shown(given)} has no time zone: write {text}Z for UTC")
    if table != "messages":
        raise InvalidInput(f"{option} can be a time for messages only: filter {table} by its own times")
    return Position(at=from_time(option, moment))


def _marks(option: str, text: str) -> dict[str, Mark]:
    try:
        marks = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"{option} {shown(text)} is not JSON: {error}") from None
    if not all(isinstance(mark, int | str) for mark in marks.values()):
        raise InvalidInput(f"{option} {shown(text)} must map queues to marks, as the offsets of a stream do")
    return dict(marks)


def _count(options: Mapping[str, str], name: str) -> int | None:
    given = options.get(name)
    if given is None:
        return None
    if not given.strip().isascii() or not given.strip().isdigit() or int(given) < 1:
        raise InvalidInput(f"{name} must be a whole number of at least 1, not {shown(given)}")
    return int(given)


def _flag(name: str, given: str) -> bool:
    flags: dict[str, bool] = {"true": True, "false": False}
    if given.lower() not in flags:
        raise InvalidInput(f"{name} must be true or false, not {shown(given)}")
    return flags[given.lower()]
