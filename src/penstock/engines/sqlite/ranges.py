"""Ranges of positions: how leases and audit entries are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def ranges(positions: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Ascending positions as ranges: 3 4 5 9 -> (3, 5) (9, 9)."""
    first = last = None
    for position in positions:
        if last is not None and position == last + 1:
            last = position
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = position
    if first is not None and last is not None:
        yield first, last
