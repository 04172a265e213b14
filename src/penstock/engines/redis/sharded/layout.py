"""Over which slots a queue is spread, as far as this process knows, and where its messages belong."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar
from zlib import crc32

import msgspec

from penstock.domain.errors import InvalidInput
from penstock.domain.limits import MAX_SHARDS
from penstock.domain.message import Draft, Options
from penstock.domain.validation import shown
from penstock.engines.redis import shards
from penstock.engines.redis.drafts import policy_of
from penstock.engines.redis.engine import RedisEngine
from penstock.engines.redis.shards import ShardPlace, ShardsChanged

P = ParamSpec("P")
R = TypeVar("R")
# How often a call is made again because the shards of a queue have changed meanwhile.
ATTEMPTS = 5


class Layout(msgspec.Struct, frozen=True):
    """The shards of a queue. `ordered` is that of its policy; `mixed` says that messages may have different priorities.
    Calls for which that counts are refused if it has changed."""

    queue: str
    count: int
    ordered: bool
    mixed: bool

    @property
    def names(self) -> list[str]:
        return shards.names(self.queue, self.count)

    @property
    def places(self) -> list[ShardPlace]:
        return [shards.parsed(name) for name in self.names]

    def hashed(self, text: str) -> int:
        """The shard of an address, a batch, or a key of an ordered queue: the same as in `Policy.shard_of`."""
        return crc32(text.encode()) % self.count

    def shard_of_id(self, message_id: str) -> int:
        """The shard of a chosen id. An id that Penstock made names the shard in the same way."""
        return int(message_id[-12:], 16) % MAX_SHARDS % self.count

    def owner(self, batch: str) -> str:
        """The shard that a batch belongs to."""
        return self.names[self.hashed(batch)]

    def shard_of(self, options: Options) -> int | None:
        """The shard of a message; None for one that may be in any. A chosen id is compared with those of one shard, so
        it decides, unless the order of a key or the address does."""
        if self.ordered:
            if options.address is not None:
                raise InvalidInput(
                    f"queue {self.queue!r} is ordered and spread over slots: address {shown(options.address)} cannot "
                    "be compared with those of other shards; send without an address, or to another queue"
                )
            return self.hashed(options.key or "")
        if options.address is not None:
            return self.hashed(options.address)
        if options.id is not None:
            return self.shard_of_id(options.id)
        if options.batch is not None and options.batch_queue == self.owner(options.batch):
            return self.hashed(options.batch)
        return None

    def at_positions(self, positions: Iterable[int]) -> dict[int, list[int]]:
        """The places in the argument by the shard of their positions; other numbers are in none."""
        found: dict[int, list[int]] = {}
        for place, position in enumerate(positions):
            found.setdefault(position % MAX_SHARDS % self.count, []).append(place)
        return found


def following(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Make the call again if it was refused because the shards of a queue have changed. If that is not enough, a shard
    may lack a change of the policy whose caller has ended: then it gets it."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        for attempt in range(ATTEMPTS):
            try:
                return method(self, *args, **kwargs)
            except ShardsChanged as error:
                layout = self.learn(error.queue)
                if attempt and layout is not None:
                    self.copy_policy(layout)
        return method(self, *args, **kwargs)

    return call


class LayoutKeeper(RedisEngine):
    """Remembers the shards of queues. A queue that nothing is known about is taken to be in one slot: the first call
    that is refused tells otherwise."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._layouts: dict[str, Layout] = {}

    def layout(self, queue: str) -> Layout | None:
        return self._layouts.get(queue)

    def learn(self, queue: str) -> Layout | None:
        """Ask the queue for its shards."""
        count, mixed, stored = self.database.command(
            "HMGET", self.database.queue_key(queue), "slots", "mixed", "policy"
        )
        if count is None or stored is None:
            self._layouts.pop(queue, None)
            return None
        found = Layout(queue, int(count), policy_of(stored).ordered, mixed is not None)
        self._layouts[queue] = found
        return found

    def copy_policy(self, layout: Layout) -> None:
        """Tell the other shards the policy of shard 0."""
        key = self.database.queue_key(layout.queue)
        stored, revision = self.database.command("HMGET", key, "policy", "revision")
        if stored is not None and revision is not None:
            with contextlib.suppress(ShardsChanged):
                for name in layout.names[1:]:
                    self.database.write("shard_policy", name, policy=stored.decode(), revision=int(revision))

    def places_of(self, layout: Layout, ids: Sequence[str]) -> dict[int, list[str]]:
        """Ids by the shard that has the message: the one that the id names, unless a key or an address decided.
        Unknown ones are given to the first shard that was asked."""
        found: dict[int, list[str]] = {}
        left = list(dict.fromkeys(ids))
        for turn in range(layout.count):
            asked: dict[int, list[str]] = {}
            for one in left:
                asked.setdefault(self._candidate(layout, one, turn), []).append(one)
            left = []
            for shard, own in asked.items():
                known = self.database.read("known_ids", layout.names[shard], ids=own)
                for one, is_known in zip(own, known, strict=True):
                    if is_known:
                        found.setdefault(shard, []).append(one)
                    else:
                        left.append(one)
            if not left:
                break
        for one in left:
            found.setdefault(self._candidate(layout, one, 0), []).append(one)
        return found

    def place_of(self, layout: Layout, message_id: str) -> ShardPlace:
        (shard,) = self.places_of(layout, [message_id])
        return layout.places[shard]

    def _candidate(self, layout: Layout, message_id: str, turn: int) -> int:
        """The shard to ask for an id in each turn."""
        return (layout.shard_of_id(message_id) + turn) % layout.count


def own_drafts(drafts: Sequence[Draft], places: Iterable[int]) -> list[Draft]:
    return [drafts[place] for place in places]
