"""Rows of the log in the binary format of COPY, built from whole Arrow columns."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow

_BEGIN = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"
_LENGTH = Struct("!i").pack
# A row is the number of its columns, then each column after its length: first the numbers, then type and payload.
_NUMBERS = {"position": ">i8", "tx": ">i8", "created_at": ">i8", "lane_id": ">i4"}
COLUMNS = (*_NUMBERS, "content_type", "payload")


class Place(NamedTuple):
    """The columns that all messages share, and their positions; only the first when they are contiguous."""

    tx: int
    created_at: int
    lane_id: int
    first: int
    positions: Sequence[int] | None


def rows(place: Place, payloads: pyarrow.BinaryArray, kind: str | None, kinds: list[str | None] | None) -> bytes:
    import pyarrow
    from pyarrow import compute

    lengths = compute.binary_length(payloads).to_numpy()
    types = [_type(kind)] if kinds is None else _types(kinds)
    pieces = (_heads(place, len(payloads)), *types, _pieces(lengths.astype(">i4")), payloads)
    joined = compute.binary_join_element_wise(*pieces, pyarrow.scalar(b""))
    return b"".join((_BEGIN, memoryview(joined.buffers()[2]), _END))


def _heads(place: Place, count: int) -> pyarrow.BinaryArray:
    import numpy

    layout = [("columns", ">i2")]
    for name, number in _NUMBERS.items():
        layout += [(f"{name}_length", ">i4"), (name, number)]
    heads = numpy.empty(count, numpy.dtype(layout))
    heads["columns"] = len(COLUMNS)
    values = {**place._asdict(), "position": place.positions or numpy.arange(place.first, place.first + count)}
    for name, number in _NUMBERS.items():
        heads[f"{name}_length"] = numpy.dtype(number).itemsize
        heads[name] = values[name]
    return _pieces(heads)


def _type(kind: str | None) -> pyarrow.BinaryScalar:
    import pyarrow

    return pyarrow.scalar(_LENGTH(-1) if kind is None else _LENGTH(len(kind.encode())) + kind.encode())


def _types(kinds: list[str | None]) -> list[pyarrow.BinaryArray]:
    import pyarrow
    from pyarrow import compute

    types = pyarrow.array(kinds, pyarrow.string()).cast(pyarrow.binary())
    lengths = compute.fill_null(compute.binary_length(types), -1)
    return [_pieces(lengths.to_numpy().astype(">i4")), types.fill_null(b"")]


def _pieces(items: Any) -> pyarrow.BinaryArray:
    """The items of a NumPy array as binary values, without a copy."""
    import numpy
    import pyarrow

    width = items.dtype.itemsize
    places = numpy.arange(0, width * len(items) + 1, width, dtype=numpy.int32)
    buffers = [None, pyarrow.py_buffer(places), pyarrow.py_buffer(items)]
    return pyarrow.BinaryArray.from_buffers(pyarrow.binary(), len(items), buffers)
