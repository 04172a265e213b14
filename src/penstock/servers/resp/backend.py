"""The operations of commands on the store, coalesced over all connections.

Clients settle by message id, the store by token: messages of queues are settled by their holder (`message_leases`),
entries of streams by any client that knows the id, as in Redis (`entry_leases`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from penstock.client.aio.call import Operation, Phase
from penstock.client.aio.store import AsyncStore
from penstock.client.store import Store
from penstock.domain.errors import PenstockError, StoreError
from penstock.domain.lifecycle import Event
from penstock.domain.message import PLAIN, Draft, Options, can_refuse
from penstock.domain.settlement import Settle
from penstock.engines.contract import POSITION, Engine, Receipt, Row
from penstock.servers.resp.claim_options import ClaimOptions
from penstock.servers.resp.consumers import GroupConsumers
from penstock.servers.resp.encoder import Reply
from penstock.servers.resp.entry_leases import EntryLeases
from penstock.servers.resp.message_leases import MessageLeases
from penstock.servers.resp.pending import Finish, Pending, as_reply
from penstock.servers.shared_receive import MAX_OPERATIONS, ReceiveRequest, Refusal, SharedReceives

# Policy of a queue whose first use is a command of this protocol: an unread message expires without a dead letter, and
# one that is not acknowledged is redelivered without limit.
POLICY: dict[str, Any] = {"primary_group": None, "max_retries": None}
# A stream entry is available at once, whatever delay its queue has: its id is its position.
NOW = Options(delay_seconds=0)
# Queues known to exist; the cache is cleared beyond this many.
MAX_KNOWN = 100_000
# How long a queue is assumed to exist: a deletion by another process is noticed within this time.
KNOWN_SECONDS = 1.0
# Sends messages to a queue inside an operation, and returns an id or an error for each.
SendEach = Callable[[str, Sequence[Draft]], list[Any]]


class Backend:
    def __init__(self, store: AsyncStore) -> None:
        self.store = store
        self.engine: Engine = store.engine
        self.local = Store(store.engine)  # the same verbs, for use inside an operation
        self.message_leases = MessageLeases(self)
        self.entry_leases = EntryLeases(self)
        self.consumers = GroupConsumers()
        self.claims = ClaimOptions()
        self._known: dict[str, float] = {}
        # Cached, because only calls of the identical operation are coalesced.
        self._sending = lru_cache(MAX_OPERATIONS)(lambda send, queue: Operation(partial(send, queue)))
        self._receives = SharedReceives(store.executor)

    def write(self, operation: Callable[[], Any], finish: Finish = as_reply) -> Pending:
        return Pending(Operation(operation), None, finish)

    def read(self, operation: Callable[[], Any], finish: Finish = as_reply) -> Pending:
        return Pending(Operation(operation, Phase.READ), None, finish)

    # -- sending ---------------------------------------------------------------------------------------------------

    def send(
        self, queue: str, drafts: list[Draft], finish: Callable[[list[Any]], Reply], send: SendEach | None = None
    ) -> Pending:
        """`finish` gets an id or an error for each message. `send` is `send_events` or `send_entries`; without it a
        new queue gets the default policy, and its state may refuse messages."""
        if send is None:
            if can_refuse(drafts):
                return Pending(Operation(partial(self._send_each, queue, drafts)), None, finish, len(drafts))
            return Pending(self._sending(self._send_each, queue), drafts, finish, len(drafts))
        if not self._known.get(queue, 0.0) > time.monotonic():
            finish = partial(self._finish_first, queue, finish)
        return Pending(self._sending(send, queue), drafts, finish, len(drafts))

    def _finish_first(self, queue: str, finish: Callable[[Any], Reply], outcome: Any) -> Reply:
        """Cache that the queue exists, for a short time: another client may delete it."""
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[queue] = time.monotonic() + KNOWN_SECONDS
        return finish(outcome)

    def send_entries(self, queue: str, drafts: Sequence[Draft]) -> list[Any]:
        """Inside an operation: send entries of a stream, and return an id or an error for each."""
        self.make(queue)
        if not self.engine.policy(queue).delay_seconds:
            # Without a default delay these are plain messages, which engines store by a shorter path.
            drafts = [(one[0], one[1], PLAIN) if one[2] is NOW else one for one in drafts]
        return self._send_each(queue, drafts)

    def send_events(self, queue: str, drafts: Sequence[Draft]) -> list[Any]:
        """Inside an operation: send events of a bananaq queue, and return an id or an error for each."""
        self.make(queue)
        return self._send_each(queue, drafts)

    def _send_each(self, queue: str, drafts: Sequence[Draft]) -> list[Any]:
        """Send all at once; if that is refused, by halves, so that only messages at fault are refused."""
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
        """Inside an operation: declare the policy of a queue that does not exist yet."""
        if self._known.get(queue, 0.0) > time.monotonic():
            return
        if not self.engine.has(queue):
            self.engine.declare(queue, POLICY)

    # -- receiving -------------------------------------------------------------------------------------------------

    def receive(
        self,
        queue: str,
        group: str | None,
        request: ReceiveRequest,
        lease_seconds: float | None,
        finish: Callable[[list[list[Receipt]]], Reply],
        *,
        makes: bool = True,
        refusal: Refusal | None = None,
    ) -> Pending:
        """Receive together with other clients. `finish` gets a list of one item, the receipts of the request, and must
        remember their leases. Without a group it is the primary one. With a `refusal` group and queue must exist."""
        if not self._known.get(queue, 0.0) > time.monotonic():
            finish = partial(self._finish_first, queue, finish)
        prepare = self.make if makes and refusal is None else None
        operation = self._receives.operation(queue, group, lease_seconds, prepare, refusal)
        return Pending(operation, [request], finish, request.limit * request.times)

    def receive_and_ack(
        self, queue: str, group: str, consumer: str, limit: int, finish: Callable[[Receipt], Reply]
    ) -> Pending:
        """Receive and ack in one transaction."""

        def operation() -> Receipt:
            self.make(queue)
            receipt = self.engine.receive(queue, group, consumer, limit, None)
            self.ack_receipt(receipt)
            return receipt

        return Pending(Operation(operation), None, finish)

    def ack_receipt(self, receipt: Receipt) -> None:
        """Inside an operation."""
        if receipt.rows:
            acks = [Settle(Event.ACK, receipt.id_of(row), row[POSITION], receipt.token) for row in receipt.rows]
            self.engine.settle(receipt.queue, receipt.group, acks)

    def release(self, receipts: list[Receipt]) -> None:
        """Release messages that no client takes, without counting an attempt."""
        for receipt in receipts:
            self.store.executor.release(receipt)

    # -- settling --------------------------------------------------------------------------------------------------

    def settle(self, queue: str, group: str, settles: list[Settle], finish: Finish) -> Pending:
        """Settle by token, coalesced with the settlements of other clients."""
        return Pending(self.store.executor.settlement(queue, group), settles, finish, len(settles))


def sent(outcome: Any) -> str:
    """Return the id of the sent message, or raise the error that refused it."""
    if isinstance(outcome, BaseException):
        raise outcome
    message_id: str = outcome
    return message_id


def portions(receipts: list[Receipt], limit: int, times: int) -> list[tuple[Receipt, list[Row]]]:
    """The rows of each of `times` commands, and their receipt."""
    if len(receipts) == times:
        return [(receipt, receipt.rows) for receipt in receipts]
    [joint] = receipts
    return [(joint, joint.rows[start : start + limit]) for start in range(0, limit * times, limit)]
