"""Names and positions of a queue that is spread over hash slots: one slot for each of its shards.

A shard is stored like a queue of its own. Its name says which shard of how many it is. Names of queues have no control
characters, so a shard is never taken for a queue. The key of shard 0 is that of the queue itself, which says that there
are others.
"""

from __future__ import annotations

from binascii import crc_hqx
from functools import lru_cache
from typing import NamedTuple

from penstock.domain.errors import StoreUnavailable
from penstock.domain.limits import MAX_SHARDS

SLOTS = 16_384


class ShardsChanged(StoreUnavailable):
    """The call took no effect: the queue is spread over another number of slots than its caller believed."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"the shards of queue {queue!r} are being replaced: try again")
        self.queue = queue


class ShardPlace(NamedTuple):
    """A shard of a queue; a queue in one slot has `slots` 0, and its positions are those of its only shard."""

    queue: str
    shard: int = 0
    slots: int = 0

    def outer(self, number: int) -> int:
        """The position in the queue of a position in the shard. 0 is the beginning."""
        return number * MAX_SHARDS + self.shard if number and self.slots else number

    def inner(self, position: int) -> int:
        """The last position in the shard that is not after a position in the queue."""
        return max(0, (position - self.shard) // MAX_SHARDS) if self.slots else position

    def inner_from(self, position: int) -> int:
        """The first position in the shard that is not before a position in the queue."""
        return max(0, -((self.shard - position) // MAX_SHARDS))


def shard_name(queue: str, shard: int, count: int) -> str:
    return f"{shard}/{count}\n{queue}" if count else queue


@lru_cache(4096)
def parsed(name: str) -> ShardPlace:
    head, separator, queue = name.partition("\n")
    if not separator:
        return ShardPlace(name)
    shard, _, count = head.partition("/")
    return ShardPlace(queue, int(shard), int(count))


@lru_cache(4096)
def tag(name: str) -> str:
    """The part of a key that names the queue or shard. The slots of the shards have equal distances, so that primaries
    with equal ranges of slots have equal numbers of shards: the tag has the first number that leads to such a slot."""
    place = parsed(name)
    if not place.shard:
        return place.queue
    wanted = _slot(place.queue) + place.shard * SLOTS // place.slots
    nearness = max(16, SLOTS // place.slots // 16)
    for number in range(64 * SLOTS):
        found = f"{place.shard}.{number}\n{place.queue}"
        if (_slot(found) - wanted) % SLOTS < nearness:
            return found
    raise AssertionError(f"no slot for shard {place.shard} of {place.queue!r}")


def _slot(text: str) -> int:
    """The slot of a key with this tag: a cluster hashes what is before the first closing brace."""
    return crc_hqx(f"q:{text}".partition("}")[0].encode(), 0) % SLOTS


@lru_cache(1024)
def names(queue: str, count: int) -> list[str]:
    return [shard_name(queue, shard, count) for shard in range(count)]


def end_of(number: int) -> int:
    """The last position of the queue whose position in its shard is not after a number."""
    return number * MAX_SHARDS + MAX_SHARDS - 1
