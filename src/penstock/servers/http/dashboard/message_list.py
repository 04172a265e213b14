"""Lists of messages, bounded in number, bytes and messages examined.

Messages come with their payloads, of up to 16 MiB each. A list is read in chunks that grow while payloads are small,
and ends when enough bytes were read; the page then says that it shows fewer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

MAX_BYTES = 48 << 20
FIRST_PIECE = 4
LIGHT_BYTES = 64 << 10


class Listed(NamedTuple):
    """`more` is where the next page begins, None at the end; `examined` is the number of messages examined."""

    items: list[Any]
    more: Any
    examined: int


Fetch = Callable[[int, Any], Awaitable[Sequence[Any]]]


async def listed(
    fetch: Fetch,
    place: Callable[[Any], Any] | None,
    limit: int,
    *,
    before: Any = None,
    keep: Callable[[Any], bool] | None = None,
    examine: int | None = None,
    whole: bool = False,
) -> Listed:
    """Up to `limit` matching items of up to `examine` examined ones, newest first.

    `fetch(limit, before)` reads a chunk, `place(item)` is where the next one begins. With `whole` there is one chunk.
    """
    if whole:
        return Listed(list(await fetch(limit, before))[:limit], None, limit)
    assert place is not None
    items: list[Any] = []
    examined = read_bytes = 0
    size = FIRST_PIECE
    bound = limit if examine is None else examine
    while True:
        size = min(size, bound - examined)
        piece = await fetch(size, before)
        for item in piece:
            examined += 1
            before = place(item)
            read_bytes += _bytes(item)
            if keep is None or keep(item):
                items.append(item)
                if len(items) == limit:
                    return Listed(items, before, examined)
        if len(piece) < size:
            return Listed(items, None, examined)
        if examined >= bound or read_bytes >= MAX_BYTES:
            return Listed(items, before, examined)
        size = size * 4 if read_bytes / examined < LIGHT_BYTES else FIRST_PIECE


def _bytes(item: Any) -> int:
    message = getattr(item, "message", item)
    return len(message.payload)
