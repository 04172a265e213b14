"""The payload bytes that one reply may have. Unread replies are held in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

# Up to this many messages are received whatever their size. Of more, only as many as fit into MAX_BYTES together.
SMALL_LIMIT = 16
MAX_BYTES = 4 * 1024 * 1024

Item = TypeVar("Item")


def pieces(items: Iterable[Item], size_of: Callable[[Item], int], most: int = MAX_BYTES) -> Iterator[list[Item]]:
    """Split into lists, each with at most this many bytes or with one item. An item is drawn, and its size looked up,
    when the pieces before it have been used."""
    piece: list[Item] = []
    left = most
    for item in items:
        size = size_of(item)
        if piece and size > left:
            yield piece
            piece, left = [], most
        piece.append(item)
        left -= size
    if piece:
        yield piece


def count_for_next(count: int, used: int) -> int:
    """How many messages of the next queue a reply of several queues may have, after this many bytes: always one, so
    that no queue waits for those named before it."""
    return count if used < MAX_BYTES else 1


def first_piece(items: Iterable[Item], size_of: Callable[[Item], int]) -> list[Item]:
    """The first items, as many as fit into one reply."""
    return next(pieces(items, size_of), [])
