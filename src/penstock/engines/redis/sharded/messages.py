"""Sending, receiving and settling in a queue that is spread over slots. Each is one call to one shard, unless the
messages themselves are in several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from penstock.domain.errors import StoreError
from penstock.domain.identity import made_id
from penstock.domain.lifecycle import State
from penstock.domain.message import Draft, Message, check_size
from penstock.domain.results import AddressState, DeadLetter, LeaseInfo
from penstock.domain.settlement import Settle, Settled
from penstock.engines.contract import Edge, Receipt
from penstock.engines.redis import drafts as draft_forms
from penstock.engines.redis import rows, shards
from penstock.engines.redis.sharded.administration import ShardAdministration
from penstock.engines.redis.sharded.layout import Layout, following, own_drafts
from penstock.engines.redis.shards import ShardPlace, ShardsChanged

R = TypeVar("R")


class ShardMessages(ShardAdministration):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # The shard of the next send that may go to any, and the newest token, by queue.
        self._turns: dict[str, int] = {}
        self._tokens: dict[str, int] = {}
        # Groups that every shard has, by queue. A shard without the group refuses a receive.
        self._groups: dict[str, set[str]] = {}

    def learn(self, queue: str) -> Layout | None:
        self._groups.pop(queue, None)
        return super().learn(queue)

    # -- sending ---------------------------------------------------------------------------------------------------

    def put(
        self,
        queue: str,
        drafts: Sequence[Draft],
        transaction: object = None,
        *,
        is_checked: bool = True,
        ticks: dict[str, Any] | None = None,
    ) -> list[str]:
        """Drafts that belong to several shards are checked in all of them before any is sent."""
        send = super().put
        if transaction is not None or not drafts:
            return send(queue, drafts, transaction, is_checked=is_checked, ticks=ticks)

        def owned(places: list[int]) -> list[Draft]:
            return [self._owned(queue, drafts[place]) for place in places]

        def routes(layout: Layout, left: list[int]) -> dict[int, list[int]]:
            own = owned(left)
            layout = self.mix(layout, own)
            found = self.routes(layout, own, None if ticks is None else ticks["schedule"])
            if len(found) > 1:
                self._check(layout, own, found, is_checked)
            return {shard: [left[at] for at in places] for shard, places in sorted(found.items())}

        def put_share(place: ShardPlace, places: list[int]) -> list[str]:
            return send(shards.shard_name(*place), owned(places), is_checked=is_checked, ticks=ticks)

        return _in_order(self.each_share(queue, range(len(drafts)), routes, put_share))

    def _owned(self, queue: str, draft: Draft) -> Draft:
        """The draft with the shard that its batch belongs to."""
        payload, content_type, options = draft
        owner = None if options.batch is None else self.layout(options.batch_queue or queue)
        if owner is None or options.batch is None:
            return draft
        return payload, content_type, msgspec.structs.replace(options, batch_queue=owner.owner(options.batch))

    def mix(self, layout: Layout, drafts: Sequence[Draft]) -> Layout:
        """Before the first message with another priority is sent, every shard knows that there are such."""
        if layout.mixed or not any(options.priority for _, _, options in drafts):
            return layout
        for name in reversed(layout.names):
            self.database.write("shards_mix", name)
        found = self.learn(layout.queue)
        if found is None or found.count != layout.count:
            raise ShardsChanged(layout.queue)
        return found

    def routes(self, layout: Layout, drafts: Sequence[Draft], schedule: str | None = None) -> dict[int, list[int]]:
        """Places of drafts by shard. Those that may be in any are in one, together; the ticks of a schedule are in one
        too, which remembers the last of them."""
        found: dict[int, list[int]] = {}
        free: list[int] = []
        for place, (_, _, options) in enumerate(drafts):
            shard = layout.hashed(schedule) if schedule is not None and not layout.ordered else layout.shard_of(options)
            (free if shard is None else found.setdefault(shard, [])).append(place)
        if free:
            turn = next(iter(found)) if found else self._turn(layout)
            found[turn] = sorted(found.get(turn, []) + free)
        return found

    def _turn(self, layout: Layout) -> int:
        """Shards take turns, from a random one on."""
        turn = self._turns.get(layout.queue)
        turn = int(self.database.random() * layout.count) if turn is None else (turn + 1) % layout.count
        self._turns[layout.queue] = turn
        return turn

    def _check(self, layout: Layout, drafts: Sequence[Draft], routes: dict[int, list[int]], is_checked: bool) -> None:
        if not is_checked:
            most = self.policy(layout.queue).max_payload_bytes
            for payload, _, _ in drafts:
                check_size(payload, most)
        for shard, places in routes.items():
            own = own_drafts(drafts, places)
            if any(options.address is not None or options.batch is not None for _, _, options in own):
                given, payloads = draft_forms.packed(own)
                self.database.write("send_check", layout.names[shard], payloads, **given, ordered=layout.ordered)

    def _beliefs(self, queue: str) -> dict[str, Any]:
        place = shards.parsed(queue)
        layout = self.layout(place.queue)
        return {"ordered": layout.ordered} if place.slots and layout else {}

    def _ids(self, queue: str, now: int, salt: int, sent: list[Any]) -> list[str]:
        place = shards.parsed(queue)
        if not place.slots:
            return super()._ids(queue, now, salt, sent)
        return [made_id(now, salt, place.outer(one)) if isinstance(one, int) else one.decode() for one in sent]

    # -- receiving -------------------------------------------------------------------------------------------------

    @following
    def receive_each(
        self,
        queue: str,
        group: str | None,
        shares: Sequence[tuple[str, int]],
        lease_seconds: float | None,
        needs_group: bool = False,
    ) -> list[Receipt]:
        layout = self.layout(queue)
        if layout is None:
            return super().receive_each(queue, group, shares, lease_seconds, needs_group)
        group = group or self.policy(queue).default_group
        self.ensure_group(layout, group, needs_group)
        found: list[Receipt] = []
        for consumer, limit in shares:
            try:
                found.append(self._receive(layout, group, consumer, limit, lease_seconds))
            except StoreError:
                # What others of the shares have got is theirs: only the first may end or repeat the call.
                if not any(one.rows for one in found):
                    raise
                found.append(Receipt(0, queue, group, consumer, 0, []))
        return found

    def ensure_group(self, layout: Layout, group: str, needs_group: bool) -> None:
        """A group is made in all shards, so that none trims what it has not read."""
        if needs_group and group not in self.groups(layout.queue):
            super().receive_each(layout.names[0], group, [("", 0)], None, needs_group=True)
        if group not in self._groups.get(layout.queue, ()):
            for name in reversed(layout.names):
                self.database.write("shard_group", name, group=group)
            self._groups.setdefault(layout.queue, set()).add(group)

    def _receive(self, layout: Layout, group: str, consumer: str, limit: int, lease_seconds: float | None) -> Receipt:
        """Shard by shard around the ring, until there are enough. The shards share a token, so that the messages can be
        settled together."""
        given: dict[str, Any] = {"group": group, "lease_seconds": lease_seconds, "mixed": layout.mixed}
        given["floor"] = self._tokens.get(layout.queue, 0)
        token, salt = 0, 0
        taken: list[Any] = []
        visited: set[ShardPlace] = set()
        try:
            for place, priority in self._turns_of(layout, group, consumer, given):
                turn = given | {"token": token or None, "priority": priority, "again": place in visited}
                salt, own, found = self._take(place, consumer, limit - len(taken), turn)
                if found:
                    token = own
                    taken += found
                    visited.add(place)
                if len(taken) >= limit:
                    break
        except StoreError:
            if not taken:
                raise
            self._groups.pop(layout.queue, None)
        self._tokens[layout.queue] = max(token, self._tokens.get(layout.queue, 0))
        return Receipt(token, layout.queue, group, consumer, salt, taken)

    def _turns_of(
        self, layout: Layout, group: str, consumer: str, given: dict[str, Any]
    ) -> Iterator[tuple[ShardPlace, int | None]]:
        """The shards in the order of the consumer, with the worst priority to take. Where there are several priorities,
        all shards are asked first for those that are ready."""
        ring = self._ring(layout, group, consumer)
        if not layout.mixed:
            yield from ((place, None) for place in ring)
            return
        ready: list[tuple[int, int]] = []
        for turn, place in enumerate(ring):
            _, _, priorities = self._called(place, [(consumer, 0)], given | {"probe": True})
            ready += [(priority, turn) for priority in priorities]
        yield from ((ring[turn], priority) for priority, turn in sorted(ready))

    def _ring(self, layout: Layout, group: str, consumer: str) -> list[ShardPlace]:
        """The consumer's own shards first, then the following ones."""
        count = layout.count
        born = self.births.get((layout.queue, group, consumer))
        birth, living = (int(self.database.random() * count), 1) if born is None else born
        return sorted(
            layout.places, key=lambda one: (one.shard % living != birth % living, (one.shard - birth) % count)
        )

    def _take(self, place: ShardPlace, consumer: str, limit: int, given: dict[str, Any]) -> tuple[int, int, list[Any]]:
        _, salt, ((own, found),) = self._called(place, [(consumer, limit)], given)
        made = [rows.receipt_row(row) for row in found]
        return salt, own, [(place.outer(row[0]), *row[1:]) for row in made]

    def _called(self, place: ShardPlace, shares: list[tuple[str, int]], given: dict[str, Any]) -> Any:
        name = shards.shard_name(*place)
        while True:
            reply = self.database.write("receive", name, **given, shares=shares, **self._chance())
            if reply[2] is not None:  # otherwise the call has handled a part of what was due
                return reply

    @following
    def ready_in(self, queue: str, group: str | None) -> float | None:
        found = [super(ShardMessages, self).ready_in(name, group) for name in self._names(queue)]
        return min((one for one in found if one is not None), default=None)

    # -- settling --------------------------------------------------------------------------------------------------

    def settle(self, queue: str, group: str, settles: Sequence[Settle]) -> list[Settled]:
        settle = super().settle

        def routes(layout: Layout, left: list[int]) -> dict[int, list[int]]:
            found = layout.at_positions(settles[at].position for at in left)
            return {shard: [left[at] for at in places] for shard, places in found.items()}

        def settle_share(place: ShardPlace, places: list[int]) -> list[Settled]:
            if not place.slots:
                return settle(queue, group, [settles[at] for at in places])
            own = [msgspec.structs.replace(settles[at], position=place.inner(settles[at].position)) for at in places]
            return settle(shards.shard_name(*place), group, own)

        return _in_order(self.each_share(queue, range(len(settles)), routes, settle_share))

    @following
    def ack_all(self, queue: str, group: str, token: int, positions: list[int]) -> bool:
        """Shard by shard: where one has lost its lease, the caller settles one by one, and those that are acked stay
        so."""
        layout = self.layout(queue)
        if layout is None:
            return super().ack_all(queue, group, token, positions)
        are_acked = True
        for shard, places in layout.at_positions(positions).items():
            inner = layout.places[shard].inner
            own = [inner(positions[at]) for at in places]
            are_acked = super().ack_all(layout.names[shard], group, token, own) and are_acked
        return are_acked

    @following
    def extend(self, queue: str, group: str, leases: Sequence[tuple[int, int]], seconds: float) -> list[int | None]:
        layout = self.layout(queue)
        if layout is None:
            return super().extend(queue, group, leases, seconds)
        found: dict[int, int | None] = {}
        for shard, places in layout.at_positions(position for _, position in leases).items():
            inner = layout.places[shard].inner
            own = [(leases[at][0], inner(leases[at][1])) for at in places]
            found.update(zip(places, super().extend(layout.names[shard], group, own, seconds), strict=True))
        return [found[at] for at in range(len(leases))]

    @following
    def position(self, queue: str, message_id: str) -> int:
        layout = self.layout(queue)
        if layout is None:
            return super().position(queue, message_id)
        place = self.place_of(layout, message_id)
        return place.outer(super().position(shards.shard_name(*place), message_id))

    @following
    def leases(
        self,
        queue: str,
        group: str,
        *,
        ids: Sequence[str] | None = None,
        consumer: str | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> list[LeaseInfo]:
        layout = self.layout(queue)
        if layout is None:
            return super().leases(queue, group, ids=ids, consumer=consumer, after=after, limit=limit)
        of_shard = None if ids is None else self.places_of(layout, ids)
        found: list[LeaseInfo] = []
        for place in layout.places:
            own = None if of_shard is None else of_shard.get(place.shard, [])
            for one in super().leases(
                shards.shard_name(*place), group, ids=own, consumer=consumer, after=place.inner(after), limit=limit
            ):
                found.append(msgspec.structs.replace(one, position=place.outer(one.position)))
        if ids is not None:
            order = {one: at for at, one in enumerate(ids)}
            return sorted(found, key=lambda one: order[one.id])
        return sorted(found, key=lambda one: one.position)[:limit]

    def remove(self, queue: str, ids: Sequence[str]) -> int:
        remove = super().remove
        found = self.each_share(queue, ids, self.places_of, lambda place, own: remove(shards.shard_name(*place), own))
        return sum(count for _, count in found)

    @following
    def find(self, queue: str, message_id: str) -> Message:
        layout = self.layout(queue)
        if layout is None:
            return super().find(queue, message_id)
        place = self.place_of(layout, message_id)
        return in_queue(place, super().find(shards.shard_name(*place), message_id))

    # -- addresses -------------------------------------------------------------------------------------------------

    @following
    def address(self, queue: str, address: str) -> AddressState | None:
        layout = self.layout(queue)
        return super().address(queue if layout is None else layout.names[layout.hashed(address)], address)

    @following
    def is_live(self, queue: str, address: str) -> bool:
        layout = self.layout(queue)
        return super().is_live(queue if layout is None else layout.names[layout.hashed(address)], address)

    @following
    def ended(self, queue: str, message_id: str) -> AddressState | None:
        return super().ended(self.name_at(queue, message_id), message_id)

    def name_at(self, queue: str, message_id: str) -> str:
        """The name under which a message is stored."""
        layout = self.layout(queue)
        return queue if layout is None else shards.shard_name(*self.place_of(layout, message_id))

    # -- dead letters ----------------------------------------------------------------------------------------------

    @following
    def dead_letters(
        self, queue: str, group: str | None, outcome: State | None, limit: int, before: Edge | None
    ) -> list[DeadLetter]:
        layout = self.layout(queue)
        if layout is None:
            return super().dead_letters(queue, group, outcome, limit, before)
        found: list[DeadLetter] = []
        for place in layout.places:
            for one in super().dead_letters(shards.shard_name(*place), group, outcome, limit, _edge(place, before)):
                position = place.outer(one.position)
                found.append(msgspec.structs.replace(one, queue=queue, position=position, id=self._id_of(place, one)))
        return sorted(found, key=lambda one: (one.died_at, one.position, one.group), reverse=True)[:limit]

    @staticmethod
    def _id_of(place: ShardPlace, letter: DeadLetter) -> str:
        """A made id ends with the position."""
        head, tail = letter.id[:-12], letter.id[-12:]
        return f"{head}{place.outer(letter.position):012x}" if tail == f"{letter.position:012x}" else letter.id

    def _letters(
        self, verb: str, queue: str, group: str, ids: Sequence[str] | None, outcome: State | None, limit: int
    ) -> int:
        letters = super()._letters
        if ids is not None:
            found = self.each_share(
                queue, ids[:limit], self.places_of,
                lambda place, own: letters(verb, shards.shard_name(*place), group, own, outcome, limit),
            )  # fmt: skip
            return sum(count for _, count in found)
        left = limit

        def call(place: ShardPlace) -> None:
            nonlocal left
            if left > 0:
                left -= letters(verb, shards.shard_name(*place), group, None, outcome, left)

        self.each_shard(queue, call)
        return limit - left


def _in_order(found: list[tuple[list[int], list[R]]]) -> list[R]:
    """The answers in the order of the items, which are numbers from 0 on."""
    answers = {at: one for places, own in found for at, one in zip(places, own, strict=True)}
    return [answers[at] for at in range(len(answers))]


def _edge(place: ShardPlace, before: Edge | None) -> Edge | None:
    """The same edge among the dead letters of a shard."""
    if before is None:
        return None
    died_at, position, group = before
    if place.outer(place.inner(position)) == position:
        return died_at, place.inner(position), group
    return died_at, place.inner(position) + 1, ""


def in_queue(place: ShardPlace, message: Message) -> Message:
    position = None if message.position is None else place.outer(message.position)
    return msgspec.structs.replace(message, queue=place.queue, position=position)
