"""Ids of many messages at once, as Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from penstock.domain.identity import made_prefix
from penstock.engines.tables import pyarrow_module

if TYPE_CHECKING:
    import pyarrow

_ID_LENGTH = 36
_PREFIX_LENGTH = 24
_DIGITS = b"0123456789abcdef"


def made_ids(created_at: Sequence[int] | Any, salt: int, positions: Sequence[int] | Any) -> pyarrow.Array:
    """`identity.made_id` for many messages, from sequences or NumPy arrays. Messages that were sent together share the
    prefix."""
    import numpy

    arrow = pyarrow_module()
    count = len(positions)
    letters = numpy.empty((count, _ID_LENGTH), numpy.uint8)
    milliseconds = numpy.asarray(created_at, numpy.int64) // 1000
    changes = numpy.flatnonzero(numpy.diff(milliseconds, prepend=-1))
    prefixes = [made_prefix(int(milliseconds[change]) * 1000, salt) for change in changes]
    distinct = numpy.frombuffer("".join(prefixes).encode(), numpy.uint8).reshape(-1, _PREFIX_LENGTH)
    letters[:, :_PREFIX_LENGTH] = numpy.repeat(distinct, numpy.diff(changes, append=count), axis=0)
    digits = numpy.frombuffer(_DIGITS, numpy.uint8)
    places = numpy.array(positions, numpy.int64)
    for digit in range(_ID_LENGTH - 1, _PREFIX_LENGTH - 1, -1):
        letters[:, digit] = digits[places & 15]
        places >>= 4
    offsets = numpy.arange(0, (count + 1) * _ID_LENGTH, _ID_LENGTH, dtype=numpy.int32)
    return cast(
        "pyarrow.Array", arrow.StringArray.from_buffers(count, arrow.py_buffer(offsets), arrow.py_buffer(letters))
    )
