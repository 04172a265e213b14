"""How a window is cut short and divided into parts, from its ranges of rows in their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

Range = tuple[int, int]
# Ranges this close to each other are read as one: skipping a few foreign rows is cheaper than another query.
NEAR = 64


def end_of_rows(ranges: Iterable[Range], rows: int, end: int) -> int:
    """The position of the last of so many rows; `end` when there are fewer. One row is the least."""
    left = max(1, rows)
    for first, last in ranges:
        if last - first + 1 >= left:
            return first + left - 1
        left -= last - first + 1
    return end


def end_of_weight(weighed: Iterable[tuple[int, int]], most: int, end: int) -> int:
    """The number of the last row before the weights add up to more than `most`. One row is the least."""
    upto: int | None = None
    for number, weight in weighed:
        most -= weight
        if most < 0 and upto is not None:
            return upto
        upto = number
    return end


def parts(ranges: Sequence[Range], most: int) -> Iterator[tuple[list[Range], int]]:
    """At most so many parts of the same number of rows, which is returned with each."""
    size = max(1, -(-sum(last - first + 1 for first, last in ranges) // most))
    piece: list[Range] = []
    room = size
    for first, last in ranges:
        while first <= last:
            upto = min(last, first + room - 1)
            _join(piece, first, upto)
            room -= upto - first + 1
            first = upto + 1
            if room == 0:
                yield piece, size
                piece, room = [], size
    if piece:
        yield piece, size - room


def _join(piece: list[Range], first: int, last: int) -> None:
    if piece and first - piece[-1][1] <= NEAR:
        piece[-1] = (piece[-1][0], last)
    else:
        piece.append((first, last))
