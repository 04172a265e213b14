"""Spreading queues over slots, and what is said about a queue as a whole."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.domain import refusals
from penstock.domain.policy import Policy
from penstock.domain.results import ConsumerInfo, GroupStats, QueueInfo
from penstock.engines.redis import refusals as shard_refusals
from penstock.engines.redis import rows, schedules, shards
from penstock.engines.redis.drafts import policy_of, policy_text
from penstock.engines.redis.sharded.calls import ShardCalls
from penstock.engines.redis.sharded.layout import following

# The numbers of a group that are not sums over the shards: a consumer is registered in each of them.
_LARGEST = ("consumers", "oldest_age_seconds")


class ShardAdministration(ShardCalls):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # The place of a consumer in birth order, and how many there are, by queue, group and name.
        self.births: dict[tuple[str, str, str], tuple[int, int]] = {}

    # -- policy ----------------------------------------------------------------------------------------------------

    @following
    def declare(self, queue: str, changes: dict[str, Any]) -> Policy:
        """A queue that was never used is spread when it gets several shards. The policy of shard 0 counts, the others
        have copies; sweeps repeat a copy that failed."""
        wanted = changes.get("shards")
        if wanted is not None and wanted > 1 and self.layout(queue) is None:
            self._spread(queue, wanted)
        layout = self.layout(queue)
        if layout is None:
            return super().declare(queue, changes)
        if wanted not in (None, layout.count):
            raise shard_refusals.shards_spread(queue, layout.count, wanted)
        if changes.get("ordered", layout.ordered) != layout.ordered and self._has_live(queue):
            raise shard_refusals.order_in_use(queue)
        policy = super().declare(layout.names[0], changes)
        self.copy_policy(layout)
        self.learn(queue)
        return policy

    def _spread(self, queue: str, count: int) -> None:
        """Create the other shards first: the queue is spread with the last call, or not at all."""
        while True:
            _, stored = self.database.write("declare", queue)
            is_fresh, generation, last, entry, salt, stored = self.database.read("shards_plan", queue)
            before = policy_of(stored)
            if not is_fresh or before.shards == count:
                return
            policy = policy_text(msgspec.structs.replace(before, shards=count))
            for name in shards.names(queue, count)[1:]:
                self.database.write(
                    "shard_open", name, policy=policy, generation=generation, last=last, entry=entry, salt=salt,
                    shard=shards.parsed(name).shard,
                )  # fmt: skip
            if self.database.write(
                "shards_commit", queue, policy=policy, expected=stored.decode(), generation=generation, count=count
            ):
                self.learn(queue)
                return

    def _has_live(self, queue: str) -> bool:
        groups = self.stats(queue).values()
        return any(one.held or one.available or one.redo or one.in_progress for one in groups)

    # -- queues ----------------------------------------------------------------------------------------------------

    def queues(self) -> list[QueueInfo]:
        return [
            one if one.policy.shards == 1 else msgspec.structs.replace(one, groups=tuple(self.groups(one.name)))
            for one in super().queues()
        ]

    @following
    def groups(self, queue: str) -> list[str]:
        names = layout.names if (layout := self.layout(queue) or self.learn(queue)) else [queue]
        return sorted({group for name in names for group in self.database.group_names(name)})

    def forget(self, queue: str, group: str) -> bool:
        forget = super().forget
        return any(self.each_shard(queue, lambda place: forget(shards.shard_name(*place), group)))

    def flush(self, queue: str) -> int:
        flush = super().flush
        return sum(self.each_shard(queue, lambda place: flush(shards.shard_name(*place))))

    def clear(self, queue: str) -> bool:
        clear = super().clear
        return any(self.each_shard(queue, lambda place: clear(shards.shard_name(*place))))

    @following
    def delete(self, queue: str) -> int:
        """Shard 0 first: then the queue is gone, and a sweep deletes shards that a crash has left."""
        layout = self.layout(queue)
        if layout is None:
            return super().delete(queue)
        count: int | None = None
        while count is None:
            mark = schedules.mark_of(self.database, queue)
            users = [one.name for one in schedules.every(self.database) if one.queue == queue]
            if users and self.database.has(queue):
                raise refusals.queue_scheduled(queue, sorted(users))
            count = self.database.write("delete", layout.names[0], scheduled=mark, **self._chance())
        return count + self._delete_shards(queue, layout.count)

    def _delete_shards(self, queue: str, count: int) -> int:
        key = self.database.queue_key(queue)
        generation, slots = self.database.command("HMGET", key, "generation", "slots")
        # Where the queue has been spread again meanwhile, the generation is that of its new shards.
        last = int(generation) - (slots is not None)
        removed = 0
        for name in shards.names(queue, count)[1:]:
            removed += self.database.write("shard_delete", name, generation=last)
        if not self.database.command("HEXISTS", key, "slots"):
            self.database.command("HDEL", key, "deleted_slots")
        self.learn(queue)
        return removed

    def parts(self, queue: str) -> list[str]:
        """For sweeps and checks, which look at the queue as it is now."""
        layout = self.learn(queue)
        if layout is not None:
            self.copy_policy(layout)
            return layout.names
        left = self.database.command("HGET", self.database.queue_key(queue), "deleted_slots")
        if left is not None:
            self._delete_shards(queue, int(left))
        return [queue]

    def _names(self, queue: str) -> list[str]:
        layout = self.layout(queue)
        return [queue] if layout is None else layout.names

    # -- counts ----------------------------------------------------------------------------------------------------

    @following
    def stats(self, queue: str) -> dict[str, GroupStats]:
        """The counts of each shard are of one moment, and so fit together; so do their sums."""
        names = self._names(queue)
        if len(names) == 1:
            return super().stats(queue)
        found: dict[str, list[GroupStats]] = {}
        for name in names:
            for group, one in super().stats(name).items():
                found.setdefault(group, []).append(one)
        return {group: _sum(found[group]) for group in sorted(found)}

    # -- consumers -------------------------------------------------------------------------------------------------

    @following
    def register(
        self,
        queue: str,
        group: str,
        name: str,
        heartbeat_seconds: float,
        max_missed_heartbeats: int = 1,
        heartbeats_per_sweep: int = 10,
    ) -> ConsumerInfo:
        """In every shard, so that each ends the leases of a consumer that has vanished. Shard 0 has the birth order."""
        layout = self.layout(queue)
        if layout is None:
            return super().register(queue, group, name, heartbeat_seconds, max_missed_heartbeats, heartbeats_per_sweep)
        number = self.database.command("INCR", f"{self.database.store_key}:consumers")
        found = [
            self.database.write(
                "register", part, group=group, name=name, seconds=heartbeat_seconds, missed=max_missed_heartbeats,
                per_sweep=heartbeats_per_sweep, number=number,
            )
            for part in reversed(layout.names)
        ]  # fmt: skip
        return self._born(rows.consumer(queue, found[-1]))

    @following
    def heartbeat(self, queue: str, group: str, name: str) -> ConsumerInfo:
        parts = reversed(self._names(queue))
        found = [self.database.write("heartbeat", part, group=group, name=name) for part in parts]
        return self._born(rows.consumer(queue, found[-1]))

    def _born(self, consumer: ConsumerInfo) -> ConsumerInfo:
        self.births[consumer.queue, consumer.group, consumer.name] = consumer.index, consumer.living
        return consumer

    def deregister(self, queue: str, group: str, name: str) -> int:
        self.births.pop((queue, group, name), None)
        deregister = super().deregister
        return sum(self.each_shard(queue, lambda place: deregister(shards.shard_name(*place), group, name)))

    def consumers(self, queue: str | None = None) -> list[ConsumerInfo]:
        found: list[ConsumerInfo] = []
        for name in self.database.registered() if queue is None else [queue]:
            found += self._consumers_of(name)
        return sorted(found, key=lambda one: one.id)

    @following
    def _consumers_of(self, queue: str) -> list[ConsumerInfo]:
        return [rows.consumer(queue, row) for row in self.database.read("consumers", self._names(queue)[0])]


def _sum(found: list[GroupStats]) -> GroupStats:
    total: dict[str, Any] = {}
    for name in GroupStats.__struct_fields__:
        values = [getattr(one, name) for one in found]
        if name in _LARGEST:
            total[name] = max((value for value in values if value is not None), default=None)
        elif isinstance(values[0], dict):
            total[name] = {key: sum(value.get(key, 0) for value in values) for key in values[0]}
        else:
            total[name] = sum(values)
    return GroupStats(**total)
