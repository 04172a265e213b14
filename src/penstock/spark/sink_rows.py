"""Columns of a frame that is written to a queue: names, types, and conversion to `engines.sink_rows`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    VarcharType,
)

from penstock.domain.errors import InvalidInput
from penstock.domain.validation import nearest, shown
from penstock.engines import sink_rows

if TYPE_CHECKING:
    import pyarrow

_TEXT = (StringType, VarcharType)
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_NUMBER = (*_WHOLE, FloatType, DoubleType, DecimalType)
# Column: the Spark types it may have, and the text for errors.
_TYPES: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "payload": ((BinaryType, *_TEXT), "binary or string; make other values JSON with to_json(...)"),
    "content_type": (_TEXT, "string"),
    "headers": ((MapType, *_TEXT), "map<string,string>, or a string that holds a JSON object"),
    "priority": (_WHOLE, "a whole number"),
    "key": (_TEXT, "string"),
    "address": (_TEXT, "string"),
    "delay_seconds": (_NUMBER, "a number"),
    "ttl_seconds": (_NUMBER, "a number"),
    "id": (_TEXT, "string"),
    "created_by": (_TEXT, "string"),
}
# Aliases.
_SHORT = {"delay": "delay_seconds", "ttl": "ttl_seconds"}


def check_rows(schema: StructType) -> None:
    """Check names and types before any row is written."""
    names = [_SHORT.get(field.name, field.name) for field in schema]
    if "payload" not in names:
        raise InvalidInput(f"a message needs a column payload: this frame has {', '.join(schema.names) or 'none'}")
    for field, name in zip(schema, names, strict=True):
        if name not in _TYPES:
            known = (*_TYPES, *_SHORT)
            raise InvalidInput(
                f"a message has no column {shown(field.name)}: select only {', '.join(_TYPES)}"
                f"{nearest(field.name, known)}"
            )
        if names.count(name) > 1:
            raise InvalidInput(f"column {name} is there twice: {', '.join(schema.names)}")
        _check_type(field, name)


def _check_type(field: StructField, name: str) -> None:
    allowed, words = _TYPES[name]
    kind = field.dataType
    is_other_map = isinstance(kind, MapType) and not all(
        isinstance(one, _TEXT) for one in (kind.keyType, kind.valueType)
    )
    if is_other_map or not isinstance(kind, allowed):
        raise InvalidInput(f"column {field.name} is {kind.simpleString()}: it must be {words}")


def messages(batch: pyarrow.RecordBatch, content_type: str | None) -> pyarrow.RecordBatch:
    """Convert a batch to the columns and types of `sink_rows.schema`."""
    import pyarrow

    schema = sink_rows.schema()
    columns: dict[str, Any] = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        name = _SHORT.get(field.name, field.name)
        if pyarrow.types.is_map(field.type):
            column = _encoded(column)
        columns[name] = _cast(column, schema.field(name).type, name)
    if content_type is not None and "content_type" not in columns:
        columns["content_type"] = pyarrow.repeat(pyarrow.scalar(content_type), batch.num_rows)
    return pyarrow.record_batch(columns)


def _cast(column: pyarrow.Array, kind: pyarrow.DataType, name: str) -> pyarrow.Array:
    import pyarrow

    try:
        return column.cast(kind)
    except pyarrow.ArrowInvalid as error:
        raise InvalidInput(f"column {name} has a value that does not fit: {error}") from None


def _encoded(maps: pyarrow.Array) -> pyarrow.Array:
    import pyarrow

    encode = msgspec.json.Encoder().encode
    texts = [None if pairs is None else encode(dict(pairs)).decode() for pairs in maps.to_pylist()]
    return pyarrow.array(texts, pyarrow.string())
