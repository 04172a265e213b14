"""The queue of the client. Each method validates its arguments and calls the engine.

The asynchronous twin `aio/queue.py` is written from this file by `scripts/twin.py`; a test compares the two.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, overload

from penstock.client.batch import Batch
from penstock.client.consumer import Consumer
from penstock.client.consumer_name import process_name
from penstock.client.delivery import Delivery
from penstock.client.executor import BACKSTOP_SECONDS
from penstock.client.producer import Producer
from penstock.client.selection import ids_of, outcome_of, state_of
from penstock.client.settlements import (
    by_group,
    by_receive,
    checked,
    checked_edge,
    checked_target,
    is_whole,
    not_acked,
)
from penstock.domain.errors import InvalidInput, MessageFailed, WaitTimeout
from penstock.domain.identity import check_id
from penstock.domain.lifecycle import State
from penstock.domain.message import PLAIN, SYSTEM, Message, Outgoing, draft, drafts, encode
from penstock.domain.policy import Policy, check_changes
from penstock.domain.refusals import no_address, no_group
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
from penstock.domain.validation import check_integer, check_list, check_name, check_seconds, shown
from penstock.engines import explanation, pages
from penstock.engines.contract import POSITION, Edge, Engine

if TYPE_CHECKING:
    from penstock.client.store import Store

MAX_LIMIT = 1_000_000
MAX_PAGE = 10_000
MAX_POSITION = 2**62


class Queue:
    """Made by `store.queue(name)`; holds no resources of its own."""

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.executor = store.executor
        self.name = check_name("queue", name)

    @property
    def engine(self) -> Engine:
        return self.store.engine

    # -- send ------------------------------------------------------------------------------------------------------

    def send(
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
        """Send one message and return its id. With `transaction`, the caller's own open connection, the send commits
        with that."""
        options = (delay_seconds, ttl_seconds, deadline_at, address, key, headers, id, content_type)
        is_plain = (
            type(priority) is int and priority == 0 and created_by == SYSTEM and options.count(None) == len(options)
        )
        if is_plain:
            # Fast path: only the payload needs validation.
            message = (payload, None, PLAIN) if type(payload) is bytes else (*encode(payload, None), PLAIN)
            ids = self.executor.send(self.name, [message], transaction)
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
        ids = self.executor.send(self.name, [draft(outgoing)], transaction)
        return ids[0]

    def send_many(self, items: Iterable[Any], *, transaction: object = None) -> list[str]:
        """Send payloads or `Outgoing` messages in one transaction; returns their ids in the same order."""
        ids = self.executor.send(self.name, drafts(items), transaction)
        return ids

    def producer(self, batch_size: int = 100, linger_seconds: float = 0.02) -> Producer:
        """Batch sends: a batch is sent when it has `batch_size` messages, or when its first one has waited
        `linger_seconds`."""
        return Producer(self, batch_size, linger_seconds)

    # -- receive ---------------------------------------------------------------------------------------------------

    def receive(
        self,
        limit: int = 1,
        group: str | None = None,
        consumer: str | None = None,
        lease_seconds: float | None = None,
        wait_seconds: float = 0,
    ) -> list[Delivery]:
        """Receive up to `limit` messages under a lease. Waits up to `wait_seconds` for the first one, never for
        more."""
        check_integer("limit", limit, 1, MAX_LIMIT)
        check_seconds("wait_seconds", wait_seconds)
        if lease_seconds is not None:
            check_seconds("lease_seconds", lease_seconds, above=True)
        consumer = process_name() if consumer is None else check_name("consumer", consumer)
        reader = None if group is None else check_name("group", group)
        ends = time.monotonic() + wait_seconds
        while True:
            receipt = self.executor.receive(self.name, reader, consumer, limit, lease_seconds)
            left = ends - time.monotonic()
            if receipt.rows or left <= 0:
                return [Delivery(row, receipt, self) for row in receipt.rows]
            self.wait_until_ready(receipt.group, left)

    def wait_until_ready(self, group: str, timeout_seconds: float) -> None:
        """Block until a receive may find a message, or until the timeout. Takes no write lock."""
        self.executor.wait((self.name, group), lambda: self.engine.ready_in(self.name, group), timeout_seconds)

    # -- settle ----------------------------------------------------------------------------------------------------

    def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settle several deliveries in one transaction; returns a result for each, in the same order."""
        several = check_list("settle takes a list such as [Ack(delivery)]", settlements)
        results: dict[int, Settled] = {}
        for group, places, settles in by_group(several, self.name):
            answers = self.executor.settle(self.name, group, settles)
            results.update(zip(places, answers, strict=True))
        return [results[place] for place in range(len(several))]

    def _settle_one(self, settlement: Settlement) -> Settled:
        """Called by the settling methods of a delivery."""
        settles = [checked(settlement, self.name)]
        results = self.executor.settle(self.name, settlement.delivery.group, settles)
        return results[0]

    def ack_many(self, deliveries: Sequence[Delivery]) -> int:
        """Ack deliveries, whole receives in one statement; returns how many. Raises LeaseLost (or OutOfOrder) naming
        those that could not be acked; the others are acked."""
        several: list[Delivery] = check_list("ack_many takes a list of deliveries as receive gives them", deliveries)
        refused: list[Settled] = []
        for receipt, rows, places in by_receive(several, self.name):
            whole, positions = is_whole(receipt, rows), [row[POSITION] for row in rows]
            if not (whole and self.executor.ack_all(self.name, receipt.group, receipt.token, positions)):
                part = [several[place] for place in places]
                results = self._ack_each(part)
                refused += [result for result in results if not result.ok]
        if refused:
            raise not_acked(refused, len(several))
        return len(several)

    # -- inspection ------------------------------------------------------------------------------------------------

    @overload
    def stats(self, group: None = None) -> dict[str, GroupStats]: ...
    @overload
    def stats(self, group: str) -> GroupStats: ...
    def stats(self, group: str | None = None) -> dict[str, GroupStats] | GroupStats:
        """Counts of every group by name, or of one."""
        every = self.executor.read(lambda: self.engine.stats(self.name))
        if group is None:
            return every
        if check_name("group", group) not in every:
            raise no_group(self.name, group, every)
        return every[group]

    def count(self) -> int:
        """The number of stored messages in any state: those that a flush or a deletion removes."""
        return self.executor.read(lambda: self.engine.count(self.name))

    def peek(self, limit: int = 10, group: str | None = None) -> list[Message]:
        """The messages that would be received next, in order, without receiving them."""
        check_integer("limit", limit, 1, MAX_LIMIT)
        reader = self.group_name(group)
        return self.executor.read(lambda: self.engine.peek(self.name, reader, limit))

    def find(self, id: str) -> Message:
        """Get a message by id, in any state."""
        message_id = check_id(id)
        return self.executor.read(lambda: self.engine.find(self.name, message_id))

    def audit(self, id: str) -> list[AuditEntry]:
        """The audit trail of a message, over all groups."""
        message_id = check_id(id)
        return self.executor.read(lambda: self.engine.audit(self.name, message_id))

    def explain(self, id: str, group: str | None = None) -> Explanation:
        """The state of a message, why it is not running, and what to do about it."""
        message_id = check_id(id)
        reader = self.group_name(group)
        return self.executor.read(lambda: explanation.explain(self.engine, self.name, message_id, reader))

    def archive(
        self, limit: int = 100, group: str | None = None, outcome: str | None = None, before: int | None = None
    ) -> list[Archived]:
        """Finished messages, latest first; `before` is the position of the last one seen, for paging."""
        check_integer("limit", limit, 1, MAX_LIMIT)
        if before is not None:
            check_integer("before", before, 0, MAX_POSITION)
        wanted = outcome_of(outcome)
        reader = self.group_name(group)
        return self.executor.read(lambda: self.engine.archive(self.name, reader, wanted, limit, before))

    def messages(
        self, state: str, *, group: str | None = None, limit: int = 100, after: str | None = None
    ) -> MessagePage:
        """Messages of a group in a state, without their payloads: held ones by when they are due, ready ones in the
        order of receiving, leased ones by position, ended ones newest first. `after` is `next` of the page before."""
        check_integer("limit", limit, 1, MAX_PAGE)
        wanted = state_of(state)
        reader = self.group_name(group)
        return self.executor.read(lambda: pages.page(self.engine, self.name, reader, wanted, limit, after))

    def leases(
        self, *, group: str | None = None, consumer: str | None = None, limit: int = 100, after: int = 0
    ) -> list[LeaseInfo]:
        """Open leases by position: consumer, times and token of each. `after` is the position of the last one seen,
        for paging."""
        check_integer("limit", limit, 1, MAX_LIMIT)
        check_integer("after", after, 0, MAX_POSITION)
        holder = None if consumer is None else check_name("consumer", consumer)
        reader = self.group_name(group)
        return self.executor.read(
            lambda: self.engine.leases(self.name, reader, consumer=holder, after=after, limit=limit)
        )

    def policy(self) -> Policy:
        return self.executor.read(lambda: self.engine.policy(self.name))

    # -- dead letters ----------------------------------------------------------------------------------------------

    def dead_letters(
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
        return self.executor.read(lambda: self.engine.dead_letters(self.name, reader, wanted, limit, until))

    def redrive(
        self,
        ids: Iterable[str] | str | None = None,
        *,
        group: str | None = None,
        outcome: str | None = None,
        limit: int = MAX_LIMIT,
    ) -> int:
        """Send dead letters again: all of the group, those with an outcome, or those with given ids; returns how
        many."""
        check_integer("limit", limit, 1, MAX_LIMIT)
        wanted, message_ids = outcome_of(outcome), None if ids is None else ids_of(ids)
        reader = self.group_name(group)
        return self.executor.write(lambda: self.engine.redrive(self.name, reader, message_ids, wanted, limit))

    def purge(
        self,
        ids: Iterable[str] | str | None = None,
        *,
        group: str | None = None,
        outcome: str | None = None,
        limit: int = MAX_LIMIT,
    ) -> int:
        """Remove dead letters permanently; returns how many."""
        check_integer("limit", limit, 1, MAX_LIMIT)
        wanted, message_ids = outcome_of(outcome), None if ids is None else ids_of(ids)
        reader = self.group_name(group)
        return self.executor.write(lambda: self.engine.purge(self.name, reader, message_ids, wanted, limit))

    # -- addresses, batches, consumers, groups ---------------------------------------------------------------------

    def wait(self, address: str, timeout_seconds: float | None = None) -> State:
        """Wait until the newest message of the address has ended. Returns `succeeded`, or raises MessageFailed with its
        last error and error code."""
        check_name("address", address)
        if timeout_seconds is not None:
            check_seconds("timeout_seconds", timeout_seconds)
        ends = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        newest = self.executor.read(lambda: self.engine.address(self.name, address))
        if newest is None:
            raise no_address(self.name, address)
        state: AddressState | None = newest if newest.outcome is not None else None
        if state is None:
            # Inside a handler, give up the slot: the awaited message may need it.
            self.executor.leave_slot()
            try:
                while state is None:
                    left = BACKSTOP_SECONDS if ends is None else ends - time.monotonic()
                    if left <= 0:
                        raise WaitTimeout(
                            f"message {newest.id} at address {shown(address)} did not end in {timeout_seconds} s"
                        )
                    self._wait_for_end(newest.id, left)
                    state = self.executor.read(lambda: self.engine.ended(self.name, newest.id))
            finally:
                self.executor.enter_slot()
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

    def is_live(self, address: str) -> bool:
        """Whether the address has a message that has not ended: sending to it would raise DuplicateAddress."""
        check_name("address", address)
        return self.executor.read(lambda: self.engine.is_live(self.name, address))

    def _wait_for_end(self, message_id: str, timeout_seconds: float) -> None:
        def ready_in() -> float | None:
            return None if self.engine.ended(self.name, message_id) is None else 0

        self.executor.wait((self.name, "ended", message_id), ready_in, timeout_seconds)

    def batch(self, name: str) -> Batch:
        """A batch of this queue: its messages are held until `start`, and an end message is sent when all are
        finished."""
        return Batch(self, name)

    def batches(self) -> list[BatchInfo]:
        return self.executor.read(lambda: self.engine.batches(self.name))

    def register(
        self,
        consumer: str | None = None,
        *,
        group: str | None = None,
        heartbeat_seconds: float = 5,
        max_missed_heartbeats: int = 1,
        heartbeats_per_sweep: int = 10,
        batch_size: int = 10,
    ) -> Consumer:
        """Register a consumer, which gets an index in birth order among the living ones. It is removed when it has
        missed more than `max_missed_heartbeats`; every `heartbeats_per_sweep` heartbeats it removes the dead consumers
        of its group. `batch_size` is the default limit of its `receive`."""
        check_integer("batch_size", batch_size, 1, MAX_LIMIT)
        heartbeat = (
            check_seconds("heartbeat_seconds", heartbeat_seconds, above=True),
            check_integer("max_missed_heartbeats", max_missed_heartbeats, 0, 1_000_000),
            check_integer("heartbeats_per_sweep", heartbeats_per_sweep, 1, 1_000_000),
        )
        name = process_name() if consumer is None else check_name("consumer", consumer)
        reader = self.group_name(group)
        info = self.executor.write(lambda: self.engine.register(self.name, reader, name, *heartbeat))
        return Consumer(self, info, batch_size)

    def consumers(self) -> list[ConsumerInfo]:
        return self.executor.read(lambda: self.engine.consumers(self.name))

    def groups(self) -> list[str]:
        return self.executor.read(lambda: self.engine.groups(self.name))

    def seek(self, group: str, target: int | datetime | str) -> int:
        """Move a group's cursor to a position, a time, "start" or "end"; returns the position."""
        check_name("group", group)
        place, is_time = checked_target(target)
        return self.executor.write(lambda: self.engine.seek(self.name, group, place, is_time))

    def preview_seek(self, group: str, target: int | datetime | str) -> SeekPreview:
        """The effect that a seek would have, without moving the cursor."""
        check_name("group", group)
        place, is_time = checked_target(target)
        return self.executor.read(lambda: self.engine.preview_seek(self.name, group, place, is_time))

    def preview_retention(self, **changes: Any) -> RetentionPreview:
        """How many messages would be removed earlier with these policy fields, such as `dead_letter_seconds=60`."""
        checked = check_changes(changes)
        return self.executor.read(lambda: self.engine.preview_retention(self.name, checked))

    # -- the whole queue -------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Let receives return nothing until `resume`; sends and settlements continue."""
        self.executor.write(lambda: self.engine.declare(self.name, {"paused": True}))

    def resume(self) -> None:
        self.executor.write(lambda: self.engine.declare(self.name, {"paused": False}))

    def flush(self) -> int:
        """Remove all messages, as if the queue had just been created; returns how many."""
        return self.executor.write(lambda: self.engine.flush(self.name))

    def delete(self) -> int:
        """Remove the queue with its messages, groups, batches and policy; returns the number of messages. Refused while
        a schedule sends to it or a consumer is registered, because they would create it again."""
        return self.executor.write(lambda: self.engine.delete(self.name))

    def remove(self, ids: Iterable[str] | str) -> int:
        """Remove messages permanently, in any state; returns how many existed. In groups where they are live they end
        as cancelled, without a dead letter."""
        message_ids = ids_of(ids)
        return self.executor.write(lambda: self.engine.remove(self.name, message_ids))

    def trim(self, *, upto: int | None = None, keep: int | None = None) -> int:
        """Remove the oldest messages of the log: all up to a position, or all but the newest `keep`; returns
        how many."""
        if (upto is None) == (keep is None):
            raise InvalidInput("trim takes either upto (a position) or keep (a number of messages)")
        if upto is not None:
            check_integer("upto", upto, 0, MAX_POSITION)
        if keep is not None:
            check_integer("keep", keep, 0, MAX_POSITION)
        return self.executor.write(lambda: self.engine.trim(self.name, upto=upto, keep=keep), alone=True)

    # -- internal --------------------------------------------------------------------------------------------------

    def group_name(self, group: str | None) -> str:
        """Validate the name of a group; None stands for the primary group."""
        if group is not None:
            return check_name("group", group)
        policy = self.policy()
        return policy.default_group

    def existing_group(self, group: str | None) -> str:
        """The same for reads, where a mistyped name must not look like an idle group."""
        reader = self.group_name(group)
        if group is not None:
            groups = self.executor.read(lambda: self.engine.groups(self.name))
            policy = self.policy()
            if reader not in (*groups, policy.default_group):
                raise no_group(self.name, reader, groups)
        return reader

    def _ack_each(self, deliveries: Sequence[Delivery]) -> list[Settled]:
        return self.settle([Ack(delivery) for delivery in deliveries])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"
