"""Reading a queue that is spread over slots: the answers of its shards, put together in the order of positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from penstock.domain import refusals
from penstock.domain.errors import StoreError
from penstock.domain.explain import Situation
from penstock.domain.lifecycle import State
from penstock.domain.message import Message
from penstock.domain.results import Archived, AuditEntry, MessagePage, MessageState, RetentionPreview, SeekPreview
from penstock.engines.contract import Receipt
from penstock.engines.pages import Found, leased_page, page_of, place_of
from penstock.engines.redis import rows, shards
from penstock.engines.redis.sharded.layout import Layout, following
from penstock.engines.redis.sharded.messages import ShardMessages, in_queue
from penstock.engines.redis.shards import ShardPlace


class ShardInspection(ShardMessages):
    # -- messages --------------------------------------------------------------------------------------------------

    @following
    def peek(self, queue: str, group: str, limit: int) -> list[Message]:
        layout = self.layout(queue)
        if layout is None:
            return super().peek(queue, group, limit)
        found: list[tuple[int, int, int, Message]] = []
        for place in layout.places:
            for turn, one in enumerate(super().peek(shards.shard_name(*place), group, limit)):
                found.append((one.priority, turn, place.shard, in_queue(place, one)))
        return [one for *_, one in sorted(found, key=lambda row: row[:3])][:limit]

    @following
    def browse(self, queue: str, after: int, upto: int | None, limit: int, *, backwards: bool = False) -> list[Message]:
        layout = self.layout(queue)
        if layout is None:
            return super().browse(queue, after, upto, limit, backwards=backwards)
        found: list[Message] = []
        for place, first, last in self._bounds(layout, after, upto):
            rows_of = super().browse(shards.shard_name(*place), first, last, limit, backwards=backwards)
            found += [in_queue(place, one) for one in rows_of]
        return sorted(found, key=lambda one: one.position or 0, reverse=backwards)[:limit]

    @following
    def places(
        self, queue: str, after: int, upto: int | None, limit: int, *, backwards: bool = False
    ) -> list[tuple[int, int, int]]:
        layout = self.layout(queue)
        if layout is None:
            return super().places(queue, after, upto, limit, backwards=backwards)
        found: list[tuple[int, int, int]] = []
        for place, first, last in self._bounds(layout, after, upto):
            for position, *others in super().places(shards.shard_name(*place), first, last, limit, backwards=backwards):
                found.append((place.outer(position), others[0], others[1]))
        return sorted(found, reverse=backwards)[:limit]

    def _bounds(self, layout: Layout, after: int, upto: int | None) -> Iterator[tuple[ShardPlace, int, int]]:
        """A range in each shard. Without an end it ends where nothing can appear any more, so that a reader that goes
        on from the last message misses none."""
        end = self.settled(layout.queue) if upto is None else upto
        for place in layout.places:
            yield place, place.inner(after), place.inner(end)

    @following
    def settled(self, queue: str) -> int:
        """Every shard is moved on to the last position that any has given out."""
        layout = self.layout(queue)
        if layout is None:
            return super().settled(queue)
        return shards.end_of(self._fenced(layout))

    def _fenced(self, layout: Layout) -> int:
        lasts = [self.database.read("number", name, what="last_position") for name in layout.names]
        newest: int = max(lasts)
        for name, last in zip(layout.names, lasts, strict=True):
            if last < newest:
                self.database.write("fence", name, last=newest)
        return newest

    @following
    def archive(self, queue: str, group: str, outcome: State | None, limit: int, before: int | None) -> list[Archived]:
        layout = self.layout(queue)
        if layout is None:
            return super().archive(queue, group, outcome, limit, before)
        found: list[Archived] = []
        for place in layout.places:
            edge = None if before is None else place.inner_from(before)
            for one in super().archive(shards.shard_name(*place), group, outcome, limit, edge):
                found.append(msgspec.structs.replace(one, message=in_queue(place, one.message)))
        return sorted(found, key=lambda one: one.message.position or 0, reverse=True)[:limit]

    # -- pages -----------------------------------------------------------------------------------------------------

    @following
    def live(self, queue: str, group: str, state: State, limit: int, after: str | None) -> MessagePage:
        layout = self.layout(queue)
        if layout is None:
            return super().live(queue, group, state, limit, after)
        if state is State.LEASED:
            (position,) = place_of(after, (0,))
            return leased_page(self.leases(queue, group, after=position, limit=limit + 1), limit)
        found = self._ready_in if state is State.READY else self._held_in
        return page_of([one for place in layout.places for one in found(place, group, limit + 1, after)], limit)

    def _ready_in(self, place: ShardPlace, group: str, limit: int, after: str | None) -> Iterator[Found]:
        priority, kind, position = place_of(after, (0, 0, 0))
        at = priority, kind, place.inner(position)
        name = shards.shard_name(*place)
        for *found, own, row in self.database.read("live_ready", name, group=group, after=at, limit=limit):
            summary = rows.summary(row, State.READY)
            yield (
                (*found, place.outer(own)),
                msgspec.structs.replace(summary, position=place.outer(summary.position or 0)),
            )

    def _held_in(self, place: ShardPlace, group: str, limit: int, after: str | None) -> Iterator[Found]:
        """Numbers of held messages are those of their shard, as positions are."""
        *head, number = place_of(after, (0, 0, 0, 0))
        at = (*head, place.inner(number))
        for *found, own, row, batch in self.database.read(
            "live_held", shards.shard_name(*place), group=group, after=at, limit=limit
        ):
            summary = rows.summary(row, State.HELD, rows.text(batch))
            if summary.position is not None:
                summary = msgspec.structs.replace(summary, position=place.outer(summary.position))
            yield (*found, place.outer(own)), summary

    # -- single messages -------------------------------------------------------------------------------------------

    @following
    def audit(self, queue: str, message_id: str) -> list[AuditEntry]:
        return super().audit(self.name_at(queue, message_id), message_id)

    @following
    def states(self, queue: str, group: str, ids: Sequence[str]) -> list[MessageState | None]:
        layout = self.layout(queue)
        if layout is None:
            return super().states(queue, group, ids)
        known: dict[str, MessageState | None] = {}
        for shard, own in self.places_of(layout, ids).items():
            known.update(zip(own, super().states(layout.names[shard], group, own), strict=True))
        return [known[one] for one in ids]

    @following
    def situation(self, queue: str, message_id: str, group: str) -> Situation:
        name = self.name_at(queue, message_id)
        found = super().situation(name, message_id, group)
        if found.position is None:
            return found
        return msgspec.structs.replace(found, position=shards.parsed(name).outer(found.position))

    @following
    def keep_traces(self, queue: str, group: str, traces: Sequence[tuple[int, str]]) -> None:
        layout = self.layout(queue)
        if layout is None:
            super().keep_traces(queue, group, traces)
            return
        for shard, places in layout.at_positions(position for position, _ in traces).items():
            inner = layout.places[shard].inner
            own = [(inner(traces[at][0]), traces[at][1]) for at in places]
            super().keep_traces(layout.names[shard], group, own)

    @following
    def error_trace(self, queue: str, message_id: str, group: str) -> str | None:
        return super().error_trace(self.name_at(queue, message_id), message_id, group)

    def take_over(
        self,
        queue: str,
        group: str,
        consumer: str,
        ids: Sequence[str],
        lease_seconds: float,
        counts: bool = True,
        force: bool = False,
    ) -> Receipt:
        """The messages that the first shards gave are the caller's, also when a later one fails."""
        given: dict[str, Any] = {
            "group": group,
            "consumer": consumer,
            "lease_seconds": lease_seconds,
            "counts": counts,
            "force": force,
        }
        token, salt = 0, 0
        taken: list[Any] = []

        def routes(layout: Layout, left: list[str]) -> dict[int, list[str]]:
            self.ensure_group(layout, group, needs_group=True)
            return self.places_of(layout, left)

        def take(place: ShardPlace, own: list[str]) -> None:
            nonlocal token, salt
            reply = self.database.write("take_over", shards.shard_name(*place), **given, ids=own, token=token or None)
            found = rows.receipt(reply, queue, consumer)
            token, salt = found.token or token, found.salt
            taken.extend((place.outer(row[0]), *row[1:]) for row in found.rows)

        try:
            self.each_share(queue, ids, routes, take)
        except StoreError:
            if not taken:
                raise
        return Receipt(token, queue, group, consumer, salt, taken)

    # -- numbers ---------------------------------------------------------------------------------------------------

    def _number(self, queue: str, what: str, at: int | None = None) -> int:
        return self._number_of(queue, what, at)

    @following
    def _number_of(self, queue: str, what: str, at: int | None) -> int:
        layout = self.layout(queue)
        if layout is None:
            return super()._number(queue, what, at)
        found = [super(ShardInspection, self)._number(name, what, at) for name in layout.names]
        if what in ("count", "unread"):
            return sum(found)
        positions = [place.outer(one) for place, one in zip(layout.places, found, strict=True)]
        return max(positions)

    @following
    def position_at(self, queue: str, at: int) -> int:
        """The position before the first message that was sent since: some of those before it may be behind it."""
        layout = self.layout(queue)
        if layout is None:
            return super().position_at(queue, at)
        first = shards.end_of(self._fenced(layout)) + 1
        for place in layout.places:
            name = shards.shard_name(*place)
            for position, _, _ in super().places(name, super()._number(name, "position_at", at), None, 1):
                first = min(first, place.outer(position))
        return first - 1

    @following
    def reached(self, queue: str, group: str) -> int:
        return max(
            shards.parsed(name).outer(own) if shards.parsed(name).slots else own
            for name in self._names(queue)
            for own in [super(ShardInspection, self).reached(name, group)]
        )

    @following
    def fitting(self, queue: str, group: str | None, limit: int, size: int) -> int:
        """So many that they fit whichever shards they come from: each may bring an equal share of the bytes."""
        names = self._names(queue)
        share = max(1, size // len(names))
        return min(super(ShardInspection, self).fitting(name, group, limit, share) for name in names)

    @following
    def unread_after(self, queue: str) -> dict[str, int]:
        """A shard in which nothing is unread gives out later positions only."""
        layout = self.layout(queue)
        if layout is None:
            return super().unread_after(queue)
        self._fenced(layout)
        found: dict[str, int] = {}
        for place in layout.places:
            for group, own in super().unread_after(shards.shard_name(*place)).items():
                following_one = place.outer(own + 1) - 1
                found[group] = min(found.get(group, following_one), following_one)
        return found

    def trim(self, queue: str, *, upto: int | None = None, keep: int | None = None) -> int:
        trim = super().trim
        end = upto

        def trim_one(place: ShardPlace) -> int:
            nonlocal end
            if not place.slots:
                return trim(queue, upto=upto, keep=keep)
            end = self._last_before(queue, keep or 0) if end is None else end
            return trim(shards.shard_name(*place), upto=place.inner(end))

        return sum(self.each_shard(queue, trim_one))

    def _last_before(self, queue: str, keep: int) -> int:
        """The last position before the newest `keep` messages."""
        newest = self.places(queue, 0, None, keep + 1, backwards=True)
        return newest[keep][0] if len(newest) > keep else 0

    # -- groups ----------------------------------------------------------------------------------------------------

    @following
    def seek(self, queue: str, group: str, target: int | str, is_time: bool = False) -> int:
        layout = self.layout(queue)
        if layout is None:
            return super().seek(queue, group, target, is_time)
        found = []
        for place, own in self._targets(layout, target, is_time):
            found.append(place.outer(super().seek(shards.shard_name(*place), group, own, is_time)))
        return self._sought(target, is_time, found)

    @following
    def preview_seek(self, queue: str, group: str, target: int | str, is_time: bool = False) -> SeekPreview:
        layout = self.layout(queue)
        if layout is None:
            return super().preview_seek(queue, group, target, is_time)
        found, passed, again = [], 0, 0
        for place, own in self._targets(layout, target, is_time):
            one = super().preview_seek(shards.shard_name(*place), group, own, is_time)
            found.append(place.outer(one.position))
            passed, again = passed + one.passed_by, again + one.read_again
        return SeekPreview(self._sought(target, is_time, found), passed, again)

    def _targets(self, layout: Layout, target: int | str, is_time: bool) -> list[tuple[ShardPlace, int | str]]:
        """The target in each shard. The end of the queue is a position that all shards have passed."""
        if target == "start" or is_time:
            return [(place, target) for place in layout.places]
        end = shards.end_of(self._fenced(layout))
        position = end if isinstance(target, str) else target
        if position > end:
            raise refusals.beyond_end(position, self.last_position(layout.queue))
        return [(place, place.inner(position)) for place in layout.places]

    @staticmethod
    def _sought(target: int | str, is_time: bool, found: list[int]) -> int:
        return target if isinstance(target, int) and not is_time else max(found)

    @following
    def preview_retention(self, queue: str, changes: dict[str, Any]) -> RetentionPreview:
        found = [super(ShardInspection, self).preview_retention(name, changes) for name in self._names(queue)]
        return RetentionPreview(sum(one.messages for one in found), sum(one.dead_letters for one in found))
