"""Where a window ends that is cut short. Rows are given in their order."""

from __future__ import annotations

from collections.abc import Iterable


def of_rows(ranges: Iterable[tuple[int, int]], rows: int, end: int) -> int:
    """The position of the last of so many rows; `end` when there are fewer. One row is the least."""
    left = max(1, rows)
    for first, last in ranges:
        if last - first + 1 >= left:
            return first + left - 1
        left -= last - first + 1
    return end


def of_weight(weighed: Iterable[tuple[int, int]], most: int, end: int) -> int:
    """The number of the last row before the weights add up to more than `most`. One row is the least."""
    upto: int | None = None
    for number, weight in weighed:
        most -= weight
        if most < 0 and upto is not None:
            return upto
        upto = number
    return end
