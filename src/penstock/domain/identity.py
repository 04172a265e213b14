"""Message ids.

An id that Penstock makes is a UUID of version 7 whose last 48 bits are the message's position in the log:

    ┌ created_at in milliseconds ┐ ┌7┐┌ salt ┐ ┌variant, salt┐ ┌ position ┐
    019a8c3e7b2d                    7  abc      8def            00000000002a

So the id need not be stored, and a message is found by its id without an index: both would cost as much as the
message itself on the hot path. The salt is a random number of the store, which keeps ids of different stores apart.
A caller may choose any other UUID; only those are kept in an index.
"""

from __future__ import annotations

import uuid
from functools import lru_cache

from penstock.domain.errors import InvalidInput
from penstock.domain.validation import shown

SALT_BITS = 26
_POSITION_BITS = 48
_POSITION_MASK = (1 << _POSITION_BITS) - 1
_TAILS = [f"{number:03x}" for number in range(1 << 12)]


def made_prefix(created_at: int, salt: int) -> str:
    """All of a made id but its last 12 digits: the same for all messages of one send."""
    return _prefix(created_at // 1000, salt)


@lru_cache(256)
def _prefix(milliseconds: int, salt: int) -> str:
    high, low = salt >> 14, salt & 0x3FFF
    return f"{milliseconds >> 16 & 0xFFFFFFFF:08x}-{milliseconds & 0xFFFF:04x}-7{high:03x}-{0x8000 | low:04x}-"


def made_id(created_at: int, salt: int, position: int) -> str:
    return f"{_prefix(created_at // 1000, salt)}{position:012x}"


def made_ids(created_at: int, salt: int, first: int, last: int) -> list[str]:
    """The ids of messages in a row. Neighbours differ in their last digits alone, so only these are put together for
    each: a large send would spend more on writing its ids than on the rest of its Python."""
    prefix = _prefix(created_at // 1000, salt)
    if first == last:
        return [f"{prefix}{first:012x}"]
    ids: list[str] = []
    while first <= last:
        block_last = min(last, first | 0xFFF)
        head = f"{prefix}{first >> 12:09x}"
        ids += [head + tail for tail in _TAILS[first & 0xFFF : (block_last & 0xFFF) + 1]]
        first = block_last + 1
    return ids


def position_of(message_id: str) -> int:
    """The position that an id names if Penstock made it; the log row says whether it did."""
    return int(message_id[-12:], 16)


def random_id(created_at: int, random_bits: int) -> str:
    """A UUID of version 7 with 74 random bits, for messages that have no position yet."""
    value = (created_at // 1000 & _POSITION_MASK) << 80
    value |= 0x7 << 76 | (random_bits >> 62 & 0xFFF) << 64 | 0x2 << 62 | (random_bits & ((1 << 62) - 1))
    return str(uuid.UUID(int=value))


def check_id(value: object) -> str:
    """The id in its one spelling (lower case, with dashes): two spellings of a UUID are the same send."""
    if isinstance(value, uuid.UUID):
        return str(value)
    try:
        # Python reads underscores, blanks and the digits of other scripts as numbers too: those are no UUID.
        if isinstance(value, str) and (read := uuid.UUID(value)).hex in value.replace("-", "").lower():
            return str(read)
    except ValueError:
        pass
    raise InvalidInput(f"id must be a UUID such as 019a8c3e-7b2d-7abc-8def-00000000002a, not {shown(value)}")
