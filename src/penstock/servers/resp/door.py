"""The store, as the commands of all connections use it: each kind of call in the form that merges best.

Leases are settled by the message's id here, while the store settles by token. Entries of streams are acked by whoever
knows their id, as in Redis: the token of a lease that was given out lately is remembered, any other is looked up in the
store. Messages of queues are settled by who holds them (`holdings`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from penstock.client.aio.call import Answer, Call
from penstock.client.aio.grouping import can_merge, merge_items, share_receive
from penstock.client.aio.store import AsyncStore
from penstock.client.store import Store
from penstock.domain.errors import PenstockError, StoreError
from penstock.domain.lifecycle import Event
from penstock.domain.message import PLAIN, Draft, Options
from penstock.domain.observations import LeaseInfo
from penstock.domain.settlement import Settle, Settled
from penstock.engines.contract import POSITION, Engine, Receipt, Row
from penstock.servers.resp.chorus import Chorus
from penstock.servers.resp.claims import Claims
from penstock.servers.resp.consumers import Consumers
from penstock.servers.resp.encoder import Reply
from penstock.servers.resp.holdings import Holdings
from penstock.servers.resp.remembering import Lease, Remembered
from penstock.servers.resp.words import CommandError
from penstock.servers.resp.work import Finish, Work
from penstock.servers.taking import Taking, Takings, Wish

# A queue that begins with a command of this protocol: nothing is dead here, an unread message just expires, and one
# that was not acknowledged comes back until it does.
POLICY: dict[str, Any] = {"primary_group": None, "max_retries": None}
# An entry of a stream is there at once, whatever delay its queue has: its id says where it lies.
NOW = Options(delay_seconds=0)
# Queues that are known to be there; one too many, and all are looked up anew.
MOST_KNOWN = 100_000
# Finds a lease by what a client calls its message, inside a call.
Find = Callable[[bytes], LeaseInfo | None]


class Door:
    def __init__(self, store: AsyncStore) -> None:
        self.store = store
        self.engine: Engine = store.engine
        self.local = Store(store.engine)  # the same verbs, for use inside a call
        self.remembered: Remembered[Lease] = Remembered()
        self.holdings = Holdings(self)
        self.consumers = Consumers()
        self.claims = Claims()
        self.chorus = Chorus(self)
        store._writes.hand_in = self.chorus.sing
        self._made: set[str] = set()

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
        return self.send_several(queue, [draft], lambda ids: finish(sent(ids[0])), makes=makes)

    def send_several(
        self,
        queue: str,
        drafts: list[Draft],
        finish: Callable[[list[Any]], Reply],
        *,
        makes: bool = True,
        merges: bool | None = None,
    ) -> Work:
        """`finish` is given an id or an error for each. `merges` is said by who knows that nothing can refuse them."""
        send = partial(self.send_now if makes else self._send_each, queue)
        merges = can_merge(drafts) if merges is None else merges
        call = Call(send, drafts, ("send", queue, makes), merge_items) if merges else Call(send, drafts)
        return Work(call, partial(self._sent_first, queue, finish) if makes and queue not in self._made else finish)

    def _sent_first(self, queue: str, finish: Callable[[list[Any]], Reply], ids: list[Any]) -> Reply:
        self._know(queue)
        return finish(ids)

    def _know(self, queue: str) -> None:
        """It is there, and need not be looked up again."""
        if len(self._made) >= MOST_KNOWN:
            self._made.clear()
        self._made.add(queue)

    def send_now(self, queue: str, drafts: Sequence[Draft]) -> list[Any]:
        """Inside a call: an id or an error for each."""
        self.make(queue)
        if any(options is NOW for _, _, options in drafts) and not self.engine.policy(queue).delay_seconds:
            # The usual case, in which they are plain messages that go the short way.
            drafts = [(one[0], one[1], PLAIN) if one[2] is NOW else one for one in drafts]
        return self._send_each(queue, drafts)

    def _send_each(self, queue: str, drafts: Sequence[Draft]) -> list[Any]:
        """All at once; when that is refused, by halves, so that only those at fault are."""
        try:
            return list(self.engine.send(queue, drafts))
        except StoreError:
            raise
        except PenstockError as error:
            if len(drafts) == 1:
                return [error]
        middle = len(drafts) // 2
        return self._send_each(queue, drafts[:middle]) + self._send_each(queue, drafts[middle:])

    def make(self, queue: str) -> None:
        """Inside a call: a queue that is used first through this protocol gets its policy."""
        if queue in self._made:
            return
        if not self.engine.has(queue):
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
        refusal: CommandError | None = None,
    ) -> Call:
        """A receive that is shared with those of other clients; its outcome is a list of receipts. No group is the
        primary one. With a `refusal` the group must be there, and so must the queue."""
        prepare = self.make if makes and refusal is None else None
        taking = Taking(self.engine, queue, group, consumer, limit, lease_seconds, prepare, refusal)
        key = ("take", queue, group, lease_seconds, makes, refusal is None)
        return Call(taking, None, key, share_receive, unwanted=self.let_go, weight=limit)

    def take_each(
        self,
        queue: str,
        group: str,
        lease_seconds: float | None,
        wishes: list[Wish],
        refusal: CommandError | None = None,
    ) -> Call:
        """Receives of several clients; a list of receipts for each."""
        prepare = self.make if refusal is None else None
        takings = Takings(self.engine, queue, group, lease_seconds, prepare, refusal, wishes)
        key = ("takes", queue, group, lease_seconds, refusal is None)
        return Call(takings, None, key, share_receive, unwanted=self._let_all_go, weight=takings.weight)

    def receive(self, queue: str, call: Call, finish: Callable[[list[Receipt]], Reply]) -> Work:
        """`finish` has to remember what it was given."""
        work = Work(call, finish)
        return work if queue in self._made else work.then(partial(self._received_first, queue))

    def _received_first(self, queue: str, reply: Reply) -> Reply:
        self._know(queue)
        return reply

    def receive_and_ack(
        self, queue: str, group: str, consumer: str, limit: int, finish: Callable[[Receipt], Reply]
    ) -> Work:
        """In one transaction: nobody will have to settle it."""

        def operation() -> Receipt:
            self.make(queue)
            receipt = self.engine.receive(queue, group, consumer, limit, None)
            self.ack_receipt(receipt)
            return receipt

        return Work(Call(operation), finish)

    def ack_receipt(self, receipt: Receipt) -> None:
        """Inside a call."""
        if receipt.rows:
            acks = [Settle(Event.ACK, receipt.id_of(row), row[POSITION], receipt.token) for row in receipt.rows]
            self.engine.settle(receipt.queue, receipt.group, acks)

    def let_go(self, receipts: list[Receipt]) -> None:
        """Nobody takes them: give them back without counting an attempt."""
        for receipt in receipts:
            self.store._let_go(receipt)

    def _let_all_go(self, shares: list[list[Receipt]]) -> None:
        for receipts in shares:
            self.let_go(receipts)

    # -- leases ----------------------------------------------------------------------------------------------------

    def remember(self, receipt: Receipt, name: Callable[[Row, Receipt], bytes]) -> None:
        token = receipt.token
        leases = {name(row, receipt): (token, row[POSITION]) for row in receipt.rows}
        self.remembered.put(receipt.queue, receipt.group, leases)

    def ack(
        self, queue: str, group: str, names: list[bytes], find: Find, finish: Callable[[list[bool]], Reply]
    ) -> Work:
        """`finish` is told of each name whether its message was in flight and is done now."""
        work = self.ack_each(queue, group, [names], find, finish)
        return Work(work.call, lambda outcome: cast(list[Reply | Work], work.finish(outcome))[0])

    def ack_each(
        self, queue: str, group: str, names: list[list[bytes]], find: Find, finish: Callable[[list[bool]], Reply]
    ) -> Work:
        """As `ack`, for several clients at once; ends with an answer for each."""
        leases = self.remembered.take(queue, group, [name for own in names for name in own])
        known = [Settle(Event.ACK, "", lease[1], lease[0]) for lease in leases if lease is not None]

        def both(told: list[bool], later: list[bool]) -> Reply:
            rest = iter(later)
            return finish([ok or next(rest) for ok in told])

        def answer(own: list[bytes], told: list[bool]) -> Reply | Work:
            lost = [name for name, ok in zip(own, told, strict=True) if not ok]
            if not lost:
                return finish(told)
            # Ended, or taken by somebody through another door, or given out elsewhere: what counts is who has it now.
            return Work(Call(partial(self._ack_found, queue, group, lost, find)), partial(both, told))

        def done(results: list[Settled]) -> Reply:
            spread = _spread(leases, results)
            if len(spread) == len(names) and all(spread):  # one each, as most say it
                return [finish([True])] * len(names)
            told = iter(spread)
            return [answer(own, [next(told) for _ in own]) for own in names]

        if known:
            return Work(self.settling(queue, group, known), done)
        wanted = [name for own in names for name in own]

        def found(outcome: list[bool]) -> Reply:
            told = iter(outcome)
            return [finish([next(told) for _ in own]) for own in names]

        return Work(Call(partial(self._ack_found, queue, group, wanted, find)), found)

    def settling(self, queue: str, group: str, settles: list[Settle]) -> Call:
        """Settlements by token, which are made together with those of other clients."""
        return Call(partial(self.engine.settle, queue, group), settles, ("settle", queue, group), merge_items)

    def _ack_found(self, queue: str, group: str, names: Sequence[bytes], find: Find) -> list[bool]:
        told = []
        for name in names:
            lease = find(name)
            told.append(lease is not None and self._ack_lease(queue, group, lease))
        return told

    def _ack_lease(self, queue: str, group: str, lease: LeaseInfo) -> bool:
        [settled] = self.engine.settle(queue, group, [Settle(Event.ACK, lease.id, lease.position, lease.token)])
        return settled.ok


def sent(outcome: Any) -> str:
    """The id of a message that was sent, or the error that refused it."""
    if isinstance(outcome, BaseException):
        raise outcome
    message_id: str = outcome
    return message_id


def portions(receipts: list[Receipt], limit: int, times: int) -> list[tuple[Receipt, list[Row]]]:
    """What each of `times` commands got."""
    if len(receipts) == times:
        return [(receipt, receipt.rows) for receipt in receipts]
    [joint] = receipts
    return [(joint, joint.rows[start : start + limit]) for start in range(0, limit * times, limit)]


def _spread(leases: list[Lease | None], results: list[Settled]) -> list[bool]:
    """Results of those that had a lease, in the place of each."""
    settled = iter(results)
    return [lease is not None and next(settled).error is None for lease in leases]
