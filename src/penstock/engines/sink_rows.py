"""Messages to send as Arrow columns, as the sink passes them to an engine. Only the payload is required."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from penstock.domain.errors import InvalidInput
from penstock.domain.limits import MAX_PRIORITY
from penstock.domain.message import Draft, Outgoing, decode_json, draft
from penstock.domain.validation import check_integer, nearest, shown
from penstock.engines.tables import pyarrow_module

if TYPE_CHECKING:
    import pyarrow

# Name and kind of each column. All but the payload may be absent or null.
_COLUMNS = {
    "payload": "bytes",
    "content_type": "text",
    "headers": "text",  # a JSON object
    "priority": "small",
    "key": "text",
    "address": "text",
    "delay_seconds": "number",
    "ttl_seconds": "number",
    "id": "text",
    "created_by": "text",
}
COLUMNS = tuple(_COLUMNS)
# A batch with more priorities than this is sent message by message.
MOST_PIECES = 16


@cache
def schema() -> pyarrow.Schema:
    arrow = pyarrow_module()
    types = {"bytes": arrow.binary(), "text": arrow.string(), "small": arrow.int32(), "number": arrow.float64()}
    return arrow.schema([arrow.field(name, types[kind], name != "payload") for name, kind in _COLUMNS.items()])


def check_batch(batch: pyarrow.RecordBatch) -> None:
    """Accept only columns of `schema`, with its types."""
    known = schema()
    if "payload" not in batch.schema.names:
        raise InvalidInput(f"messages to send need a column payload: these have {', '.join(batch.schema.names)}")
    for field in batch.schema:
        if field.name not in _COLUMNS:
            raise InvalidInput(f"messages have no column {shown(field.name)}{nearest(field.name, COLUMNS)}")
        if field.type != known.field(field.name).type:
            raise InvalidInput(f"column {field.name} must be {known.field(field.name).type}, not {field.type}")
    if batch.column("payload").null_count:
        raise InvalidInput("column payload has nulls: every message has a payload, though it may be empty")


def is_plain(batch: pyarrow.RecordBatch) -> bool:
    """Whether the messages have only payloads and content types."""
    return _are_null(batch, ("payload", "content_type"))


def by_priority(batch: pyarrow.RecordBatch) -> list[tuple[int, pyarrow.RecordBatch]] | None:
    """The batch split by priority, if its messages are otherwise plain and the priorities are few; else None. Such
    messages need no work per message."""
    import pyarrow.compute as compute

    if not _are_null(batch, ("payload", "content_type", "priority")):
        return None
    plain = batch.select([name for name in ("payload", "content_type") if name in batch.schema.names])
    if is_plain(batch):
        return [(0, plain)]
    priorities = compute.fill_null(batch.column("priority"), 0)
    found = sorted(compute.unique(priorities).to_pylist())
    if len(found) > MOST_PIECES:
        return None
    for one in found:
        check_integer("priority", one, 0, MAX_PRIORITY)
    if len(found) == 1:
        return [(found[0], plain)]
    return [(one, plain.filter(compute.equal(priorities, one))) for one in found]


def _are_null(batch: pyarrow.RecordBatch, but: tuple[str, ...]) -> bool:
    return all(batch.column(name).null_count == batch.num_rows for name in batch.schema.names if name not in but)


def drafts(batch: pyarrow.RecordBatch) -> Iterator[Draft]:
    """Drafts, row by row, with every field checked."""
    names = batch.schema.names
    columns = [batch.column(name).to_pylist() for name in names]
    for values in zip(*columns, strict=True):
        given: dict[str, Any] = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        if "headers" in given:
            given["headers"] = decode_json(given["headers"].encode())
        yield draft(Outgoing(**given))
