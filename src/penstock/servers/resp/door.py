"""The store, as the commands of all connections use it: each kind of call in the form that merges best.

Leases are settled by the message's id here, while the store settles by token. The token of a lease that was given out
lately is remembered; any other is looked up in the store, so that an ack may come over another connection, through
another server, or after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock.client.aio.gathering import Answer, Call
from penstock.client.aio.grouping import can_merge, merge_items, share_receive
from penstock.client.aio.store import AsyncStore
from penstock.client.store import Store
from penstock.domain.identity import made_id
from penstock.domain.lifecycle import Event
from penstock.domain.message import Draft
from penstock.domain.settlement import Settle, Settled
from penstock.engines.contract import CREATED_AT, ID, POSITION, Engine, Receipt, Row
from penstock.servers.resp.encoder import Reply
from penstock.servers.resp.work import Finish, Work
from penstock.servers.taking import Taking

# A queue that begins with a command of this protocol: nothing is dead here, an unread message just expires, and one
# that was not acknowledged comes back until it does.
POLICY: dict[str, Any] = {"primary_group": None, "max_retries": None}
# Leases remembered; about 300 bytes each.
MAX_REMEMBERED = 100_000


class Door:
    def __init__(self, store: AsyncStore) -> None:
        self.store = store
        self.engine: Engine = store.engine
        self.local = Store(store.engine)  # the same verbs, for use inside a call
        self._made: set[str] = set()
        self._tokens: dict[tuple[str, str, str], tuple[int, int]] = {}
        self._entries: dict[tuple[str, str, int], tuple[int, str]] = {}
        self._groups: set[tuple[str, str]] = set()
        self._consumers: dict[tuple[str, str, str], None] = {}

    def submit(self, work: Work, answer: Answer) -> None:
        self.store._post(work.call, answer, reads=work.reads)

    # -- any call --------------------------------------------------------------------------------------------------

    def change(self, operation: Callable[[], Any], finish: Finish) -> Work:
        """A call that takes its turn among all others."""
        return Work(Call(operation), finish)

    def look(self, operation: Callable[[], Any], finish: Finish) -> Work:
        return Work(Call(operation), finish, reads=True)

    # -- sending ---------------------------------------------------------------------------------------------------

    def send(self, queue: str, draft: Draft, finish: Callable[[str], Reply], *, makes: bool = True) -> Work:
        """`finish` is given the message's id. Without `makes` a new queue gets the usual policy."""
        drafts = [draft]
        send = partial(self._send, queue) if makes else partial(self.engine.send, queue)
        call = Call(send, drafts, ("send", queue, makes), merge_items) if can_merge(drafts) else Call(send, drafts)
        if makes and queue not in self._made:
            return Work(call, partial(self._sent_first, queue, finish))
        return Work(call, finish if finish is first else partial(_finish_first, finish))

    def _sent_first(self, queue: str, finish: Callable[[str], Reply], ids: list[str]) -> Reply:
        self._made.add(queue)
        return ids[0] if finish is first else finish(ids[0])

    def _send(self, queue: str, drafts: Sequence[Draft]) -> list[str]:
        self.make(queue)
        return self.engine.send(queue, drafts)

    def make(self, queue: str) -> None:
        """Inside a call: a queue that is used first through this protocol gets its policy."""
        if queue in self._made:
            return
        if all(info.name != queue for info in self.engine.queues()):
            self.engine.declare(queue, POLICY)

    # -- receiving -------------------------------------------------------------------------------------------------

    def take(
        self,
        queue: str,
        group: str | None,
        consumer: str,
        limit: int,
        lease_seconds: float | None,
        *,
        makes: bool = True,
    ) -> Call:
        """A receive that is shared with those of other clients. No group is the primary one."""
        prepare = self.make if makes else None
        taking = Taking(self.engine, queue, group, consumer, limit, lease_seconds, prepare)
        key = ("take", queue, group, lease_seconds, makes)
        return Call(taking, None, key, share_receive, unwanted=self.store._let_go, weight=limit)

    def receive(
        self,
        queue: str,
        group: str,
        consumer: str,
        limit: int,
        lease_seconds: float | None,
        finish: Callable[[Receipt], Reply],
    ) -> Work:
        """`finish` has to remember what it was given."""
        work = Work(self.take(queue, group, consumer, limit, lease_seconds), finish)
        return work if queue in self._made else work.then(partial(self._received_first, queue))

    def _received_first(self, queue: str, reply: Reply) -> Reply:
        self._made.add(queue)
        return reply

    def receive_and_ack(
        self, queue: str, group: str, consumer: str, limit: int, finish: Callable[[Receipt], Reply]
    ) -> Work:
        """In one transaction: nobody will have to settle it."""

        def operation() -> Receipt:
            self.make(queue)
            receipt = self.engine.receive(queue, group, consumer, limit, None)
            if receipt.rows:
                acks = [Settle(Event.ACK, row_id(row, receipt), row[POSITION], receipt.token) for row in receipt.rows]
                self.engine.settle(queue, group, acks)
            return receipt

        return Work(Call(operation), finish)

    def let_go(self, receipt: Receipt) -> None:
        """Nobody takes it: give it back without counting an attempt."""
        self.store._let_go(receipt)

    # -- leases ----------------------------------------------------------------------------------------------------

    def remember(self, receipt: Receipt) -> None:
        for row in receipt.rows:
            self.remember_one(receipt, row, row_id(row, receipt))

    def remember_one(self, receipt: Receipt, row: Row, message_id: str) -> None:
        tokens = self._tokens
        tokens[receipt.queue, receipt.group, message_id] = receipt.token, row[POSITION]
        while len(tokens) > MAX_REMEMBERED:
            del tokens[next(iter(tokens))]

    def remember_entries(self, receipt: Receipt) -> None:
        """The same for stream commands, which know a message by its place."""
        entries = self._entries
        for row in receipt.rows:
            entries[receipt.queue, receipt.group, row[POSITION]] = receipt.token, row_id(row, receipt)
        while len(entries) > MAX_REMEMBERED:
            del entries[next(iter(entries))]

    def ack_entries(self, queue: str, group: str, positions: Sequence[int]) -> Work:
        """How many of the entries were in flight and are done now."""
        known: list[Settle] = []
        unknown: list[int] = []
        for position in dict.fromkeys(positions):
            found = self._entries.pop((queue, group, position), None)
            if found is None:
                unknown.append(position)
            else:
                known.append(Settle(Event.ACK, found[1], position, found[0]))

        def count(results: list[Settled]) -> Reply | Work:
            lost = [settle.position for settle, result in zip(known, results, strict=True) if not result.ok]
            done = len(known) - len(lost)
            again = unknown + lost
            return Work(Call(partial(self._ack_unknown, queue, group, again)), lambda n: done + n) if again else done

        if not known:
            return Work(Call(partial(self._ack_unknown, queue, group, unknown)), lambda n: n)
        return Work(
            Call(partial(self.engine.settle, queue, group), known, ("settle", queue, group), merge_items), count
        )

    def _ack_unknown(self, queue: str, group: str, positions: Sequence[int]) -> int:
        acks = []
        for position in positions:
            found = self.engine.browse(queue, position - 1, position, 1)
            for lease in self.engine.leases(queue, group, ids=[one.id for one in found]):
                acks.append(Settle(Event.ACK, lease.id, lease.position, lease.token))
        return sum(result.ok for result in self.engine.settle(queue, group, acks)) if acks else 0

    # -- groups ----------------------------------------------------------------------------------------------------

    def knows_group(self, queue: str, group: str) -> bool:
        return (queue, group) in self._groups

    def learn_group(self, queue: str, group: str) -> None:
        self._groups.add((queue, group))

    def meet(self, queue: str, group: str, consumer: str) -> bool:
        """Whether this consumer was not heard of before."""
        known = (queue, group, consumer) in self._consumers
        self._consumers[queue, group, consumer] = None
        while len(self._consumers) > MAX_REMEMBERED:
            del self._consumers[next(iter(self._consumers))]
        return not known

    def forget_group(self, queue: str, group: str) -> None:
        self._groups.discard((queue, group))

    def settle(self, queue: str, group: str, settle: Settle, finish: Callable[[Settled | None], Reply]) -> Work:
        """Settle by id; `settle` says how, and its token and position are found here. None when there is no lease."""
        known = self._tokens.pop((queue, group, settle.id), None)
        if known is None:
            return self._settle_unknown(queue, group, settle, finish)

        def done(results: list[Settled]) -> Reply | Work:
            if results[0].ok:
                return finish(results[0])
            # Ended, or taken by somebody through another door: what counts is who has it now.
            return self._settle_unknown(queue, group, settle, finish)

        item = _with_lease(settle, *known)
        return Work(
            Call(partial(self.engine.settle, queue, group), [item], ("settle", queue, group), merge_items), done
        )

    def _settle_unknown(
        self, queue: str, group: str, settle: Settle, finish: Callable[[Settled | None], Reply]
    ) -> Work:
        def operation() -> Settled | None:
            leases = self.engine.leases(queue, group, ids=[settle.id])
            if not leases:
                return None
            return self.engine.settle(queue, group, [_with_lease(settle, leases[0].token, leases[0].position)])[0]

        return Work(Call(operation), finish)


def first(ids: Any) -> Any:
    """The reply to a send: the id as it is."""
    return ids[0]


def _finish_first(finish: Callable[[str], Reply], ids: list[str]) -> Reply:
    return finish(ids[0])


def row_id(row: Row, receipt: Receipt) -> str:
    return row[ID] or made_id(row[CREATED_AT], receipt.salt, row[POSITION])


def _with_lease(settle: Settle, token: int, position: int) -> Settle:
    return Settle(settle.event, settle.id, position, token, settle.reason, settle.delay_seconds)
