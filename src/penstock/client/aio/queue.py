# Generated from src/penstock/client/queue.py by scripts/twin.py: change that file and run the script.
"""A queue, as a program uses it. Every verb checks what it was given and hands it to the engine."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, overload

from penstock.client.aio.batch import AsyncBatch
from penstock.client.aio.consumer import AsyncConsumer
from penstock.client.aio.delivery import AsyncDelivery
from penstock.client.aio.producer import AsyncProducer
from penstock.client.executor import BACKSTOP_SECONDS
from penstock.client.selection import ids_of, outcome_of, state_of
from penstock.client.settlements import by_group, checked, checked_edge, checked_target, not_acked, whole_receives
from penstock.domain.errors import InvalidInput, MessageFailed, NotFound, WaitTimeout
from penstock.domain.identity import check_id
from penstock.domain.lifecycle import State
from penstock.domain.message import PLAIN, SYSTEM, Message, Outgoing, draft, drafts, encode
from penstock.domain.policy import Policy, check_changes
from penstock.domain.results import (
    AddressState,
    Archived,
    AuditEntry,
    BatchInfo,
    ConsumerInfo,
    DeadLetter,
    Explanation,
    GroupStats,
    LeaseInfo,
    MessagePage,
    RetentionPreview,
    SeekPreview,
)
from penstock.domain.settlement import Ack, Settled, Settlement
from penstock.domain.validation import check_integer, check_name, check_seconds, nearest, shown
from penstock.engines import explanation, pages
from penstock.engines.contract import Edge, Engine

if TYPE_CHECKING:
    from penstock.client.aio.store import AsyncStore

MAX_LIMIT = 1_000_000
MAX_PAGE = 10_000
MAX_POSITION = 2**62
HOST = socket.gethostname()


class AsyncQueue:
    """Made by `await store.queue(name)`; holds no resources of its own."""

    def __init__(self, store: AsyncStore, name: str) -> None:
        self.store = store
        self.executor = store.executor
        self.name = check_name("queue", name)

    @property
    def engine(self) -> Engine:
        return self.store.engine

    # -- sending ---------------------------------------------------------------------------------------------------

    async def send(
        self,
        payload: Any,
        *,
        priority: int = 0,
        delay_seconds: float | None = None,
        ttl_seconds: float | None = None,
        deadline_at: datetime | None = None,
        address: str | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
        created_by: str = "system",
        content_type: str | None = None,
        transaction: object = None,
    ) -> str:
        """Put one message in and give back its id. `transaction` is the caller's own open connection."""
        options = (delay_seconds, ttl_seconds, deadline_at, address, key, headers, id, content_type)
        is_plain = (
            type(priority) is int and priority == 0 and created_by == SYSTEM and options.count(None) == len(options)
        )
        if is_plain:
            # The short path: only the payload is left to check.
            message = (payload, None, PLAIN) if type(payload) is bytes else (*encode(payload, None), PLAIN)
            ids = await self.executor.send(self.name, [message], transaction)
            return ids[0]
        outgoing = Outgoing(
            payload=payload,
            priority=priority,
            delay_seconds=delay_seconds,
            ttl_seconds=ttl_seconds,
            deadline_at=deadline_at,
            address=address,
            key=key,
            headers=headers,
            id=id,
            created_by=created_by,
            content_type=content_type,
        )
        ids = await self.executor.send(self.name, [draft(outgoing)], transaction)
        return ids[0]

    async def send_many(self, items: Iterable[Any], *, transaction: object = None) -> list[str]:
        """Put in payloads or `Outgoing` messages, all or none; their ids in the same order."""
        ids = await self.executor.send(self.name, drafts(items), transaction)
        return ids

    def producer(self, batch_size: int = 100, linger_seconds: float = 0.02) -> AsyncProducer:
        """Gather sends and put them in together: when `batch_size` wait, or the first has waited `linger_seconds`."""
        return AsyncProducer(self, batch_size, linger_seconds)

    # -- receiving -------------------------------------------------------------------------------------------------

    async def receive(
        self,
        limit: int = 1,
        group: str | None = None,
        consumer: str | None = None,
        lease_seconds: float | None = None,
        wait_seconds: float = 0,
    ) -> list[AsyncDelivery]:
        """Take up to `limit` messages under a lease; wait up to `wait_seconds` for the first. Never waits for more."""
        check_integer("limit", limit, 1, MAX_LIMIT)
        check_seconds("wait_seconds", wait_seconds)
        if lease_seconds is not None:
            check_seconds("lease_seconds", lease_seconds, above=True)
        consumer = _own_name() if consumer is None else check_name("consumer", consumer)
        reader = None if group is None else check_name("group", group)
        ends = time.monotonic() + wait_seconds
        while True:
            receipt = await self.executor.receive(self.name, reader, consumer, limit, lease_seconds)
            left = ends - time.monotonic()
            if receipt.rows or left <= 0:
                return [AsyncDelivery(row, receipt, self) for row in receipt.rows]
            await self._wait_for_work(receipt.group, left)

    async def _wait_for_work(self, group: str, timeout_seconds: float) -> None:
        """Until a receive may find something, or the time is up. Looking takes no write lock."""
        await self.executor.wait((self.name, group), lambda: self.engine.ready_in(self.name, group), timeout_seconds)

    # -- settling --------------------------------------------------------------------------------------------------

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settle many at once, in one transaction, with a result for each in the same order."""
        results: dict[int, Settled] = {}
        for group, places, settles in by_group(settlements, self.name):
            answers = await self.executor.settle(self.name, group, settles)
            results.update(zip(places, answers, strict=True))
        return [results[place] for place in range(len(settlements))]

    async def _settle_one(self, settlement: Settlement) -> Settled:
        """What a delivery does for itself."""
        settles = [checked(settlement, self.name)]
        results = await self.executor.settle(self.name, settlement.delivery.group, settles)
        return results[0]

    async def ack_many(self, deliveries: Sequence[AsyncDelivery]) -> int:
        """Ack deliveries, whole receives in one statement; counts them. LeaseLost (or OutOfOrder) names those that
        were not acked, after the others were."""
        refused: list[Settled] = []
        for receipt, positions, places in whole_receives(deliveries, self.name):
            whole = await self.executor.ack_all(self.name, receipt.group, receipt.token, positions)
            if not whole:
                part = [deliveries[place] for place in places]
                results = await self._ack_each(part)
                refused += [result for result in results if not result.ok]
        if refused:
            raise not_acked(refused, len(deliveries))
        return len(deliveries)

    # -- looking ---------------------------------------------------------------------------------------------------

    @overload
    async def stats(self, group: None = None) -> dict[str, GroupStats]: ...
    @overload
    async def stats(self, group: str) -> GroupStats: ...
    async def stats(self, group: str | None = None) -> dict[str, GroupStats] | GroupStats:
        """Counts of every group by name, or of one."""
        every = await self.executor.read(lambda: self.engine.stats(self.name))
        if group is None:
            return every
        if check_name("group", group) not in every:
            raise NotFound(f"queue {self.name!r} has no group {shown(group)}{nearest(group, every)}")
        return every[group]

    async def count(self) -> int:
        """How many messages the queue holds, whatever became of them: those that a flush or a deletion removes."""
        return await self.executor.read(lambda: self.engine.count(self.name))

    async def peek(self, limit: int = 10, group: str | None = None) -> list[Message]:
        """What would be received next, in that order, without receiving it."""
        check_integer("limit", limit, 1, MAX_LIMIT)
        reader = await self._group(group)
        return await self.executor.read(lambda: self.engine.peek(self.name, reader, limit))

    async def find(self, id: str) -> Message:
        """One message by its id, wherever it is."""
        message_id = check_id(id)
        return await self.executor.read(lambda: self.engine.find(self.name, message_id))

    async def audit(self, id: str) -> list[AuditEntry]:
        """What happened to a message, in order, over all groups."""
        message_id = check_id(id)
        return await self.executor.read(lambda: self.engine.audit(self.name, message_id))

    async def explain(self, id: str, group: str | None = None) -> Explanation:
        """Where a message is, why it is not running, and what to do about it."""
        message_id = check_id(id)
        reader = await self._group(group)
        return await self.executor.read(lambda: explanation.explain(self.engine, self.name, message_id, reader))

    async def archive(
        self, limit: int = 100, group: str | None = None, outcome: str | None = None, before: int | None = None
    ) -> list[Archived]:
        """Finished messages, latest first; `before` is the position of the last one seen, for paging."""
        check_integer("limit", limit, 1, MAX_LIMIT)
        if before is not None:
            check_integer("before", before, 0, MAX_POSITION)
        wanted = outcome_of(outcome)
        reader = await self._group(group)
        return await self.executor.read(lambda: self.engine.archive(self.name, reader, wanted, limit, before))

    async def messages(
        self, state: str, *, group: str | None = None, limit: int = 100, after: str | None = None
    ) -> MessagePage:
        """Messages of a group in a state, without their payloads: held ones by when they are due, ready ones in the
        order of receiving, leased ones by position, ended ones newest first. `after` is `next` of the page before."""
        check_integer("limit", limit, 1, MAX_PAGE)
        wanted = state_of(state)
        reader = await self._group(group)
        return await self.executor.read(lambda: pages.page(self.engine, self.name, reader, wanted, limit, after))

    async def leases(
        self, *, group: str | None = None, consumer: str | None = None, limit: int = 100, after: int = 0
    ) -> list[LeaseInfo]:
        """What is running: who has it, since when and until when, and the token that settles it. `after` is the
        position of the last one seen."""
        check_integer("limit", limit, 1, MAX_LIMIT)
        check_integer("after", after, 0, MAX_POSITION)
        holder = None if consumer is None else check_name("consumer", consumer)
        reader = await self._group(group)
        return await self.executor.read(
            lambda: self.engine.leases(self.name, reader, consumer=holder, after=after, limit=limit)
        )

    async def policy(self) -> Policy:
        return await self.executor.read(lambda: self.engine.policy(self.name))

    # -- dead letters ----------------------------------------------------------------------------------------------

    async def dead_letters(
        self,
        limit: int = 100,
        group: str | None = None,
        outcome: str | None = None,
        before: datetime | DeadLetter | Edge | None = None,
    ) -> list[DeadLetter]:
        """Messages that ended without success, newest first, of all groups or of one. `before` is a time, or the last
        one seen, for paging."""
        check_integer("limit", limit, 1, MAX_LIMIT)
        wanted = outcome_of(outcome)
        until = checked_edge(before)
        reader = None if group is None else check_name("group", group)
        return await self.executor.read(lambda: self.engine.dead_letters(self.name, reader, wanted, limit, until))

    async def redrive(
        self,
        ids: Iterable[str] | str | None = None,
        *,
        group: str | None = None,
        outcome: str | None = None,
        limit: int = MAX_LIMIT,
    ) -> int:
        """Send dead letters again: all of the group, those with an outcome, or those with given ids. Counts them."""
        check_integer("limit", limit, 1, MAX_LIMIT)
        wanted, message_ids = outcome_of(outcome), None if ids is None else ids_of(ids)
        reader = await self._group(group)
        return await self.executor.write(lambda: self.engine.redrive(self.name, reader, message_ids, wanted, limit))

    async def purge(
        self,
        ids: Iterable[str] | str | None = None,
        *,
        group: str | None = None,
        outcome: str | None = None,
        limit: int = MAX_LIMIT,
    ) -> int:
        """Remove dead letters for good. Counts them."""
        check_integer("limit", limit, 1, MAX_LIMIT)
        wanted, message_ids = outcome_of(outcome), None if ids is None else ids_of(ids)
        reader = await self._group(group)
        return await self.executor.write(lambda: self.engine.purge(self.name, reader, message_ids, wanted, limit))

    # -- addresses, batches, consumers, groups ---------------------------------------------------------------------

    async def wait(self, address: str, timeout_seconds: float | None = None) -> State:
        """Until the newest message of the address has ended: `succeeded`, or MessageFailed with its last error and the
        code of that."""
        check_name("address", address)
        if timeout_seconds is not None:
            check_seconds("timeout_seconds", timeout_seconds)
        ends = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        newest = await self.executor.read(lambda: self.engine.address(self.name, address))
        if newest is None:
            raise NotFound(f"queue {self.name!r} never had a message with address {shown(address)}")
        state: AddressState | None = newest if newest.outcome is not None else None
        if state is None:
            # In a handler the slot is free meanwhile: what is awaited may need it.
            self.executor.leave_slot()
            try:
                while state is None:
                    left = BACKSTOP_SECONDS if ends is None else ends - time.monotonic()
                    if left <= 0:
                        raise WaitTimeout(
                            f"message {newest.id} at address {shown(address)} did not end in {timeout_seconds} s"
                        )
                    await self._wait_for_end(newest.id, left)
                    state = await self.executor.read(lambda: self.engine.ended(self.name, newest.id))
            finally:
                await self.executor.enter_slot()
        if state.outcome is not State.SUCCEEDED:
            why = state.reason or "no reason given"
            code = "" if state.code is None else f" (code {state.code})"
            raise MessageFailed(
                f"message {state.id} at address {shown(address)} ended {state.outcome}: {why}{code}",
                str(state.outcome),
                state.reason,
                state.code,
            )
        return state.outcome

    async def is_live(self, address: str) -> bool:
        """Whether the address has a message that has not ended: sending to it would raise DuplicateAddress."""
        check_name("address", address)
        return await self.executor.read(lambda: self.engine.is_live(self.name, address))

    async def _wait_for_end(self, message_id: str, timeout_seconds: float) -> None:
        def ready_in() -> float | None:
            return None if self.engine.ended(self.name, message_id) is None else 0

        await self.executor.wait((self.name, "ended", message_id), ready_in, timeout_seconds)

    def batch(self, name: str) -> AsyncBatch:
        """Messages that are held until started, with an end message when all are finished."""
        return AsyncBatch(self, name)

    async def batches(self) -> list[BatchInfo]:
        return await self.executor.read(lambda: self.engine.batches(self.name))

    async def register(
        self,
        consumer: str | None = None,
        *,
        group: str | None = None,
        heartbeat_seconds: float = 5,
        max_missed_heartbeats: int = 1,
        heartbeats_per_sweep: int = 10,
        batch_size: int = 10,
    ) -> AsyncConsumer:
        """Take a place in the birth order of the living consumers. Missing more than `max_missed_heartbeats` loses it;
        every `heartbeats_per_sweep` heartbeats the consumer removes others of its group that have. `batch_size` is how
        many messages its `receive` takes."""
        check_integer("batch_size", batch_size, 1, MAX_LIMIT)
        heartbeat = (
            check_seconds("heartbeat_seconds", heartbeat_seconds, above=True),
            check_integer("max_missed_heartbeats", max_missed_heartbeats, 0, 1_000_000),
            check_integer("heartbeats_per_sweep", heartbeats_per_sweep, 1, 1_000_000),
        )
        name = _own_name() if consumer is None else check_name("consumer", consumer)
        reader = await self._group(group)
        info = await self.executor.write(lambda: self.engine.register(self.name, reader, name, *heartbeat))
        return AsyncConsumer(self, info, batch_size)

    async def consumers(self) -> list[ConsumerInfo]:
        return await self.executor.read(lambda: self.engine.consumers(self.name))

    async def groups(self) -> list[str]:
        return await self.executor.read(lambda: self.engine.groups(self.name))

    async def seek(self, group: str, target: int | datetime | str) -> int:
        """Move a group's cursor to a position, a time, "start" or "end"; gives back the position."""
        check_name("group", group)
        place, is_time = checked_target(target)
        return await self.executor.write(lambda: self.engine.seek(self.name, group, place, is_time))

    async def preview_seek(self, group: str, target: int | datetime | str) -> SeekPreview:
        """What that seek would do to messages, without doing it."""
        check_name("group", group)
        place, is_time = checked_target(target)
        return await self.executor.read(lambda: self.engine.preview_seek(self.name, group, place, is_time))

    async def preview_retention(self, **changes: Any) -> RetentionPreview:
        """What would go earlier if these policy fields were declared, such as `dead_letter_seconds=60`."""
        checked = check_changes(changes)
        return await self.executor.read(lambda: self.engine.preview_retention(self.name, checked))

    # -- the whole queue -------------------------------------------------------------------------------------------

    async def pause(self) -> None:
        """Hand out nothing until `resume`; sends and settlements go on."""
        await self.executor.write(lambda: self.engine.declare(self.name, {"paused": True}))

    async def resume(self) -> None:
        await self.executor.write(lambda: self.engine.declare(self.name, {"paused": False}))

    async def flush(self) -> int:
        """Remove every message, as if the queue had just been made. Counts them."""
        return await self.executor.write(lambda: self.engine.flush(self.name))

    async def delete(self) -> int:
        """Remove the queue itself, with its messages, groups, batches and policy; counts the messages. Refused while a
        schedule sends to it or a consumer is registered: they would make it anew."""
        return await self.executor.write(lambda: self.engine.delete(self.name))

    async def remove(self, ids: Iterable[str] | str) -> int:
        """Take messages out of the queue for good, wherever they are; counts those that were there. Where they were
        live they end as cancelled, without a dead letter."""
        message_ids = ids_of(ids)
        return await self.executor.write(lambda: self.engine.remove(self.name, message_ids))

    async def trim(self, *, upto: int | None = None, keep: int | None = None) -> int:
        """Remove the oldest messages of the log: all up to a position, or all but the newest `keep`; counts them."""
        if (upto is None) == (keep is None):
            raise InvalidInput("trim takes either upto (a position) or keep (a number of messages)")
        if upto is not None:
            check_integer("upto", upto, 0, MAX_POSITION)
        if keep is not None:
            check_integer("keep", keep, 0, MAX_POSITION)
        return await self.executor.write(lambda: self.engine.trim(self.name, upto=upto, keep=keep), alone=True)

    # -- how calls reach the engine --------------------------------------------------------------------------------

    async def _group(self, group: str | None) -> str:
        """None is the primary group."""
        if group is not None:
            return check_name("group", group)
        policy = await self.policy()
        return policy.default_group

    async def _known_group(self, group: str | None) -> str:
        """The same for looking, where a mistyped name must not look like a group in which nothing happens."""
        reader = await self._group(group)
        if group is not None:
            groups = await self.executor.read(lambda: self.engine.groups(self.name))
            policy = await self.policy()
            if reader not in (*groups, policy.default_group):
                raise NotFound(f"queue {self.name!r} has no group {shown(reader)}{nearest(reader, groups)}")
        return reader

    async def _ack_each(self, deliveries: Sequence[AsyncDelivery]) -> list[Settled]:
        return await self.settle([Ack(delivery) for delivery in deliveries])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


def _own_name() -> str:
    """Of a consumer that was given none. A forked process is another one than its parent."""
    return f"{HOST}-{os.getpid()}"
