"""Binary dumpers for arrays of payloads and positions.

psycopg dumps a list item by item, which for a thousand payloads costs more than sending them.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING

from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

if TYPE_CHECKING:
    import pyarrow

_HEADER = Struct("!iiIii")
_LENGTH = Struct("!i").pack
_BYTEA, _BYTEA_ARRAY = 17, 1001
_INT8, _INT8_ARRAY = 20, 1016


class Payloads:
    """Bytes as a parameter of type bytea[]."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[bytes]) -> None:
        self.items = items


class Column:
    """An Arrow column as a parameter of type bytea[], dumped as a whole."""

    __slots__ = ("items",)

    def __init__(self, items: pyarrow.BinaryArray) -> None:
        self.items = items


class Numbers:
    """Integers as a parameter of type bigint[]."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[int]) -> None:
        self.items = items


class _PayloadsDumper(Dumper):
    format = Format.BINARY
    oid = _BYTEA_ARRAY

    def dump(self, obj: Payloads) -> bytes:
        items = obj.items
        parts = [_HEADER.pack(1, 0, _BYTEA, len(items), 1)] if items else [_EMPTY_BYTEA]
        for item in items:
            parts += (_LENGTH(len(item)), item)
        return b"".join(parts)


class _ColumnDumper(Dumper):
    format = Format.BINARY
    oid = _BYTEA_ARRAY

    def dump(self, obj: Column) -> bytes:
        import numpy
        import pyarrow
        from pyarrow import compute

        count = len(obj.items)
        if not count:
            return _EMPTY_BYTEA
        sizes = compute.binary_length(obj.items).to_numpy().astype(">i4").tobytes()
        places = numpy.arange(0, 4 * count + 1, 4, dtype=numpy.int32)
        lengths = pyarrow.BinaryArray.from_buffers(
            pyarrow.binary(), count, [None, pyarrow.py_buffer(places), pyarrow.py_buffer(sizes)]
        )
        # Concatenate length-prefixed items into PostgreSQL's binary array format.
        joined = compute.binary_join_element_wise(lengths, obj.items, pyarrow.scalar(b""))
        return _HEADER.pack(1, 0, _BYTEA, count, 1) + memoryview(joined.buffers()[2])


class _NumbersDumper(Dumper):
    format = Format.BINARY
    oid = _INT8_ARRAY

    def dump(self, obj: Numbers) -> bytes:
        items = obj.items
        if not items:
            return _EMPTY_INT8
        return _HEADER.pack(1, 0, _INT8, len(items), 1) + b"".join([_NUMBER(8, item) for item in items])


_NUMBER = Struct("!iq").pack
_EMPTY_BYTEA = Struct("!iiI").pack(0, 0, _BYTEA)
_EMPTY_INT8 = Struct("!iiI").pack(0, 0, _INT8)


def register(adapters: AdaptersMap) -> None:
    adapters.register_dumper(Payloads, _PayloadsDumper)
    adapters.register_dumper(Column, _ColumnDumper)
    adapters.register_dumper(Numbers, _NumbersDumper)
