"""Batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.domain.errors import InvalidInput
from penstock.domain.lifecycle import State
from penstock.domain.message import Draft, Options, named_after
from penstock.domain.results import BatchInfo, MessagePage, MessageState, MessageSummary
from penstock.domain.timestamps import to_time
from penstock.domain.validation import shown
from penstock.engines.pages import Found, members_with_states, page_of, place_of
from penstock.engines.redis import rows
from penstock.engines.redis.connection import RedisDatabase
from penstock.engines.redis.drafts import option_map, policy_of


class BatchCalls:
    database: RedisDatabase

    def batch_mark(self, queue: str, name: str, opens: bool) -> int:
        mark: int = self.database.read("batch_mark", queue, name=name, opens=opens)
        return mark

    def batch_open(
        self, queue: str, name: str, end: Draft | None, abort: Draft | None, after: int | None = None
    ) -> BatchInfo:
        given: dict[str, Any] = {"name": name, "after": after}
        payloads: list[bytes] = []
        for kind, message in (("finish", end), ("abort", abort)):
            if message is None:
                continue
            if message[2].address is not None:
                raise InvalidInput(f"the end or abort message of batch {shown(name)} cannot have an address")
            payload, content_type, options = named_after(name, message)
            given[kind] = {
                "type": content_type,
                "options": option_map(options),
                "shard": self._end_shard(queue, options),
            }
            payloads.append(payload)
        return rows.batch(queue, self.database.write("batch_open", queue, payloads, **given))

    def _end_shard(self, queue: str, options: Options) -> str | None:
        """The shard that the end or abort message belongs to, where that may be another than the one of the batch."""
        return None

    def batch_start(self, queue: str, name: str, after: int | None = None) -> BatchInfo:
        return self._changed(queue, self.database.write("batch_start", queue, name=name, after=after))

    def batch_cancel(self, queue: str, name: str, after: int | None = None) -> BatchInfo:
        return self._changed(queue, self.database.write("batch_cancel", queue, name=name, after=after))

    def _changed(self, queue: str, reply: list[Any]) -> BatchInfo:
        """Continue a batch with many members, piece by piece: others wait for each call."""
        found, has_more, others = reply
        for other in others:
            given = {"owner": queue, "number": found[0]}
            while (later := self.database.write("batch_continue", other.decode(), (), **given)) and later[1]:
                pass
        while has_more or others:
            later = self.database.write("batch_continue", queue, number=found[0])
            if later is None:  # flushed meanwhile
                break
            found, has_more, others = later
        return rows.batch(queue, found)

    def batch(self, queue: str, name: str, after: int | None = None) -> BatchInfo:
        return rows.batch(queue, self.database.read("batch", queue, name=name, after=after))

    def batches(self, queue: str) -> list[BatchInfo]:
        return [rows.batch(queue, row) for row in self.database.read("batches", queue)]

    def cancelled(self, queue: str, group: str, positions: Sequence[int]) -> list[bool]:
        found = self.database.read("cancelled", queue, group=group, positions=list(positions))
        return [bool(one) for one in found]

    def members(self, queue: str, name: str, number: int | None, limit: int, after: str | None) -> MessagePage:
        place = place_of(after, (0, 0, 0))
        batch, own, others = self.database.read("members", queue, name=name, number=number)
        listed = [(queue, own)]
        for other in sorted(one.decode() for one in others):
            listed.append((other, self.database.read("members", other, owner=queue, number=batch)[1]))
        found: list[Found] = []
        for index, (member_queue, members) in enumerate(listed):
            for held, at, message_id, created_at in members:
                if (held, at, index) > place:
                    state, position = (State.HELD, None) if held else (State.READY, at)
                    summary = MessageSummary(
                        message_id.decode(), state, position, to_time(created_at), queue=member_queue
                    )
                    found.append(((held, at, index), summary))
        return members_with_states(page_of(found, limit), self._states_in_primary)

    def _states_in_primary(self, queue: str, ids: list[str]) -> list[MessageState | None]:
        stored = self.database.command("HGET", self.database.queue_key(queue), "policy")
        group = policy_of(stored).default_group
        return [rows.message_state(row) for row in self.database.read("states", queue, group=group, ids=ids)]
