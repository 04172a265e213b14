"""The contract on Redis: every verb is one call of a function, which is atomic."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from penstock.domain import refusals
from penstock.domain.errors import InvalidInput, PenstockError, StoreError
from penstock.domain.identity import made_id, made_ids
from penstock.domain.lifecycle import Event, State
from penstock.domain.message import Draft, Message
from penstock.domain.policy import Policy
from penstock.domain.recurrence import CatchUp, Schedule
from penstock.domain.results import (
    AddressState,
    Check,
    ConsumerInfo,
    DeadLetter,
    GroupStats,
    LeaseInfo,
    QueueInfo,
    Repair,
    SweepReport,
)
from penstock.domain.settlement import Settle, Settled, lease_lost, out_of_order
from penstock.domain.timestamps import SECOND, to_time
from penstock.engines import flaws
from penstock.engines.contract import Capabilities, Edge, Operation, Receipt
from penstock.engines.flaws import Choices
from penstock.engines.redis import doctor, joins, migration, rows, schedules, sweep
from penstock.engines.redis import drafts as draft_forms
from penstock.engines.redis.batches import BatchCalls
from penstock.engines.redis.connection import RedisDatabase
from penstock.engines.redis.inspection import InspectionCalls
from penstock.engines.redis.notify import ChannelWatch
from penstock.engines.redis.pipeline import PipelineCalls
from penstock.engines.redis.ranges import contiguous_ranges

# Dead letters that one call redrives or purges by id.
AT_ONCE = 1000


class RedisEngine(BatchCalls, InspectionCalls, PipelineCalls):
    name = "redis"
    capabilities = Capabilities(rolls_back=False)

    def __init__(self, database: RedisDatabase) -> None:
        self.database = database
        self.watch = ChannelWatch(database)
        database.on_commit = self.watch.committed
        database.may_publish = self.watch.is_due
        database.spread = partial(migration.spread, database)

    # -- the store -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self.watch.close()
        self.database.close()

    def now(self) -> int:
        if self.database.clock is not None:
            return self.database.clock()
        number: int = self.database.store_call("now", self.database.store_key)
        return number

    def together(self, operations: Sequence[Operation]) -> list[Any]:
        """One after the other: each call is a transaction of its own on the server."""
        results: list[Any] = []
        for operation in operations:
            try:
                results.append(operation())
            except StoreError:
                raise
            except PenstockError as error:
                results.append(error)
        return results

    def end_interrupted(self) -> None:
        self.database.nodes.end_interrupted()

    def wait(self, seen: int, timeout_seconds: float) -> int:
        return self.watch.wait(seen, timeout_seconds)

    def seen(self) -> int:
        return self.watch.seen()

    # -- queues ----------------------------------------------------------------------------------------------------

    def declare(self, queue: str, changes: dict[str, Any]) -> Policy:
        """Merge the changes here and store the result if the policy is still the one they were merged into."""
        _, stored = self.database.write("declare", queue)
        while True:
            policy = msgspec.structs.replace(draft_forms.policy_of(stored), **changes)
            wanted = {"expected": stored.decode(), "policy": draft_forms.policy_text(policy)}
            is_done, stored = self.database.write("declare", queue, **wanted)
            if is_done:
                return policy

    def policy(self, queue: str) -> Policy:
        stored = self.database.command("HGET", self.database.queue_key(queue), "policy")
        return Policy() if stored is None else draft_forms.policy_of(stored)

    def has(self, queue: str) -> bool:
        return self.database.has(queue)

    def queues(self) -> list[QueueInfo]:
        found: list[QueueInfo] = []
        for name in self.database.registered():
            stored, created = self.database.command("HMGET", self.database.queue_key(name), "policy", "created_at")
            if stored is not None:
                names = tuple(self.database.group_names(name))
                found.append(QueueInfo(name, draft_forms.policy_of(stored), names, to_time(int(created))))
        return found

    def flush(self, queue: str) -> int:
        count: int = self.database.write("flush", queue, **self._chance())
        return count

    def delete(self, queue: str) -> int:
        """Schedules are in a slot of their own: the call is made again if one was declared meanwhile."""
        count: int | None = None
        while count is None:
            mark = schedules.mark_of(self.database, queue)
            users = [one.name for one in schedules.every(self.database) if one.queue == queue]
            if users and self.database.has(queue):
                raise refusals.queue_scheduled(queue, sorted(users))
            count = self.database.write("delete", queue, scheduled=mark, **self._chance())
        return count

    def _chance(self) -> dict[str, Any]:
        """The random numbers of a call: a share of shards, and the first id of messages without a position."""
        random = self.database.random
        return {"random": random(), "bits": int(random() * (1 << 48))}

    # -- messages --------------------------------------------------------------------------------------------------

    def send(self, queue: str, drafts: Sequence[Draft], transaction: object = None) -> list[str]:
        return self.put(queue, drafts, transaction, is_checked=False)

    def put(
        self,
        queue: str,
        drafts: Sequence[Draft],
        transaction: object = None,
        *,
        is_checked: bool = True,
        ticks: dict[str, Any] | None = None,
    ) -> list[str]:
        """Send drafts; with `is_checked` their size was checked before. `ticks` names the tick of each: the schedule,
        since when it exists, and the times."""
        if transaction is not None:
            raise InvalidInput("a Redis store has no transactions that a send could be part of: send without one")
        if not drafts:
            return []
        if joins.is_needed(self.database, queue, drafts):
            return self._ids(queue, *joins.send(self.database, queue, drafts, self._chance(), **self._beliefs(queue)))
        given, payloads = draft_forms.packed(drafts)
        given |= {"is_checked": is_checked, "ticks": ticks, **self._beliefs(queue)}
        now, salt, sent = self.database.write("send", queue, payloads, **given, **self._chance())
        if (
            "ordered" not in given
            and "options" not in given
            and isinstance(sent[0], int)
            and sent[-1] == sent[0] + len(sent) - 1
        ):
            return made_ids(now, salt, sent[0], sent[-1])
        return self._ids(queue, now, salt, sent)

    def _beliefs(self, queue: str) -> dict[str, Any]:
        """What a call says about the shards of a queue that is spread over slots."""
        return {}

    def _ids(self, queue: str, now: int, salt: int, sent: list[Any]) -> list[str]:
        """The ids of sent messages: the server answers with the position of each, or with its id."""
        return [made_id(now, salt, one) if isinstance(one, int) else one.decode() for one in sent]

    def parts(self, queue: str) -> list[str]:
        """The names that the queue is stored under."""
        return [queue]

    def receive(
        self,
        queue: str,
        group: str | None,
        consumer: str,
        limit: int,
        lease_seconds: float | None,
        needs_group: bool = False,
    ) -> Receipt:
        return self.receive_each(queue, group, [(consumer, limit)], lease_seconds, needs_group)[0]

    def receive_each(
        self,
        queue: str,
        group: str | None,
        shares: Sequence[tuple[str, int]],
        lease_seconds: float | None,
        needs_group: bool = False,
    ) -> list[Receipt]:
        given: dict[str, Any] = {
            "group": group,
            "shares": list(shares),
            "lease_seconds": lease_seconds,
            "needs_group": needs_group,
        }
        name, salt, found = self.database.write("receive", queue, **given, **self._chance())
        while found is None:  # the call has handled a part of what was due
            name, salt, found = self.database.write("receive", queue, **given, **self._chance())
        receipts: list[Receipt] = []
        if len(found) == len(shares):
            for (consumer, _), (token, taken) in zip(shares, found, strict=True):
                made = [rows.receipt_row(row) for row in taken]
                receipts.append(Receipt(token, queue, name.decode(), consumer, salt, made))
            return receipts
        ((token, taken),) = found
        start = 0
        for consumer, limit in shares:
            made = [rows.receipt_row(row) for row in taken[start : start + limit]]
            receipts.append(Receipt(token, queue, name.decode(), consumer, salt, made))
            start += limit
        return receipts

    def ready_in(self, queue: str, group: str | None) -> float | None:
        found: int | None = self.database.read("ready_in", queue, group=group)
        return None if found is None else found / SECOND

    def settle(self, queue: str, group: str, settles: Sequence[Settle]) -> list[Settled]:
        given = [
            (
                one.event.value, one.position, one.token, one.reason, one.delay_seconds, one.code,
                self.database.random() if one.event is Event.NAK else None,
            )
            for one in settles
        ]  # fmt: skip
        # A settlement may send the end message of a batch, whose shard is a matter of chance.
        found = self.database.write("settle", queue, group=group, settles=given, **self._chance())
        return [_settled(one, state.decode()) for one, state in zip(settles, found, strict=True)]

    def ack_all(self, queue: str, group: str, token: int, positions: list[int]) -> bool:
        ranges = list(contiguous_ranges(positions))
        return bool(self.database.write("ack_all", queue, group=group, token=token, ranges=ranges))

    def extend(self, queue: str, group: str, leases: Sequence[tuple[int, int]], seconds: float) -> list[int | None]:
        found: list[int | None] = self.database.write(
            "extend", queue, group=group, leases=list(leases), seconds=seconds
        )
        return found

    def position(self, queue: str, message_id: str) -> int:
        position: int | None = self.database.read("position", queue, id=message_id)
        if position is None:
            raise refusals.message_held(message_id)
        return position

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
        chosen = None if ids is None else list(ids)
        found = self.database.read(
            "leases", queue, group=group, ids=chosen, consumer=consumer, after=after, limit=limit
        )
        return [rows.lease(row) for row in found]

    def remove(self, queue: str, ids: Sequence[str]) -> int:
        count: int = self.database.write("remove", queue, ids=list(ids), **self._chance())
        return count

    def trim(self, queue: str, *, upto: int | None = None, keep: int | None = None) -> int:
        """In several calls, because others wait for each."""
        removed, has_more = 0, 1
        while has_more:
            count, has_more = self.database.write("trim", queue, upto=upto, keep=keep, **self._chance())
            removed += count
        return removed

    def find(self, queue: str, message_id: str) -> Message:
        return rows.message(queue, self.database.read("find", queue, id=message_id))

    # -- groups ----------------------------------------------------------------------------------------------------

    def seek(self, queue: str, group: str, target: int | str, is_time: bool = False) -> int:
        position: int = self.database.write(
            "seek", queue, group=group, target=target, is_time=is_time, **self._chance()
        )
        return position

    def groups(self, queue: str) -> list[str]:
        return self.database.group_names(queue)

    def forget(self, queue: str, group: str) -> bool:
        return bool(self.database.write("forget", queue, group=group))

    def stats(self, queue: str) -> dict[str, GroupStats]:
        return dict(map(rows.stats, self.database.read("stats", queue)))

    # -- addresses -------------------------------------------------------------------------------------------------

    def address(self, queue: str, address: str) -> AddressState | None:
        return rows.address_state(self.database.read("address", queue, address=address))

    def is_live(self, queue: str, address: str) -> bool:
        return bool(self.database.read("is_live", queue, address=address))

    def ended(self, queue: str, message_id: str) -> AddressState | None:
        return rows.address_state(self.database.read("ended", queue, id=message_id))

    # -- consumers -------------------------------------------------------------------------------------------------

    def register(
        self,
        queue: str,
        group: str,
        name: str,
        heartbeat_seconds: float,
        max_missed_heartbeats: int = 1,
        heartbeats_per_sweep: int = 10,
    ) -> ConsumerInfo:
        number = self.database.command("INCR", f"{self.database.store_key}:consumers")
        found = self.database.write(
            "register", queue, group=group, name=name, seconds=heartbeat_seconds, missed=max_missed_heartbeats,
            per_sweep=heartbeats_per_sweep, number=number,
        )  # fmt: skip
        return rows.consumer(queue, found)

    def heartbeat(self, queue: str, group: str, name: str) -> ConsumerInfo:
        return rows.consumer(queue, self.database.write("heartbeat", queue, group=group, name=name))

    def deregister(self, queue: str, group: str, name: str) -> int:
        ended, has_more = self.database.write("deregister", queue, group=group, name=name)
        while has_more:
            count, has_more = self.database.write("deregister", queue, group=group, name=name, again=True)
            ended += count
        return int(ended)

    def consumers(self, queue: str | None = None) -> list[ConsumerInfo]:
        names = self.database.registered() if queue is None else [queue]
        found = [rows.consumer(name, row) for name in names for row in self.database.read("consumers", name)]
        return sorted(found, key=lambda one: one.id)

    # -- dead letters ----------------------------------------------------------------------------------------------

    def dead_letters(
        self, queue: str, group: str | None, outcome: State | None, limit: int, before: Edge | None
    ) -> list[DeadLetter]:
        edge = None if before is None else list(before)
        salt, found = self.database.read("dead_letters", queue, group=group, outcome=outcome, limit=limit, before=edge)
        letters = [rows.dead_letter(queue, salt, row) for row in found]
        return sorted(letters, key=lambda one: (one.died_at, one.position, one.group), reverse=True)[:limit]

    def redrive(self, queue: str, group: str, ids: Sequence[str] | None, outcome: State | None, limit: int) -> int:
        return self._letters("redrive", queue, group, ids, outcome, limit)

    def purge(self, queue: str, group: str, ids: Sequence[str] | None, outcome: State | None, limit: int) -> int:
        return self._letters("purge", queue, group, ids, outcome, limit)

    def _letters(
        self, verb: str, queue: str, group: str, ids: Sequence[str] | None, outcome: State | None, limit: int
    ) -> int:
        """In several calls, because others wait for each."""
        if ids is None:
            return self._oldest_letters(verb, queue, group=group, outcome=outcome, limit=limit)
        done = 0
        for first in range(0, max(1, min(len(ids), limit)), AT_ONCE):
            piece = list(ids[first : min(first + AT_ONCE, limit)])
            count, _, _ = self.database.write(verb, queue, group=group, ids=piece, outcome=outcome, limit=limit)
            done += count
        return done

    def _oldest_letters(self, verb: str, queue: str, limit: int, **given: Any) -> int:
        done, skip, has_more = 0, 0, 1
        while has_more and done < limit:
            count, stay, has_more = self.database.write(verb, queue, **given, limit=limit - done, skip=skip)
            done, skip = done + count, skip + stay
        return done

    # -- maintenance -----------------------------------------------------------------------------------------------

    def sweep(self) -> SweepReport:
        return sweep.sweep(self)

    def claim_sweep(self, every_seconds: float) -> bool:
        return bool(self.database.store_call("claim_sweep", self.database.store_key, seconds=every_seconds))

    # -- schedules -------------------------------------------------------------------------------------------------

    def schedule(self, name: str, cron: str, timezone: str, queue: str, draft: Draft, catch_up: CatchUp) -> Schedule:
        return schedules.put(self, name, cron, timezone, queue, draft, catch_up)

    def schedules(self) -> list[Schedule]:
        return schedules.every(self.database)

    def schedule_pause(self, name: str, paused: bool) -> Schedule:
        return schedules.pause(self, name, paused)

    def unschedule(self, name: str) -> None:
        schedules.remove(self.database, name)

    def schedule_run(self, name: str) -> str:
        return schedules.run(self, name)

    # -- administration --------------------------------------------------------------------------------------------

    def migrate(self) -> list[str]:
        return migration.migrate(self.database)

    def doctor(self) -> list[Check]:
        return doctor.examine(self)

    def repair(self, dry_run: bool, choices: Choices) -> list[Repair]:
        return flaws.repaired(doctor.flaws_of(self, choices), dry_run)


def _settled(settle: Settle, result: str) -> Settled:
    if result == "lost":
        return lease_lost(settle)
    if result == "order":
        return out_of_order(settle)
    is_repeat = result.startswith("=")
    return Settled(settle.id, State(result.removeprefix("=")), is_repeat=is_repeat)
