"""Ranges of positions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def contiguous_ranges(positions: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Ascending positions as ranges: 3 4 5 9 -> (3, 5) (9, 9)."""
    first = last = -1
    for position in positions:
        if position == last + 1 and first >= 0:
            last = position
            continue
        if first >= 0:
            yield first, last
        first = last = position
    if first >= 0:
        yield first, last
