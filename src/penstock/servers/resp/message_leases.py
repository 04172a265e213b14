"""Holders of leased messages, for the commands that settle by message id alone.

The store settles by token. A client of QGET knows only ids, so the server caches which connection received each message
and under which token. That connection may settle it; others only as follows:

- A lease under a name (CLIENT SETNAME, or CONSUMER of QRECEIVE) belongs to the name: connections with that name and
  user may settle it, through any server of the store.
- A lease without a name belongs to its connection. Once that is closed, any other nameless connection of the same user
  may settle it. The same holds for leases that this server does not know: those from before its start, and those
  dropped from the cache.
- With the token any connection may settle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.domain.errors import LeaseLost, OutOfOrder
from penstock.domain.lifecycle import Event
from penstock.domain.results import LeaseInfo
from penstock.domain.settlement import Settle, Settled
from penstock.engines.contract import POSITION, Receipt
from penstock.servers.resp.encoder import Replies, Reply
from penstock.servers.resp.lease_cache import LeaseCache
from penstock.servers.resp.pending import Pending

if TYPE_CHECKING:
    from penstock.servers.resp.backend import Backend
    from penstock.servers.resp.session import ClientSession

# The consumer of connections without a name.
NAMELESS = "resp"
# The reply to an ack: 1 if the message is done now, 0, or an error.
Acked = int | OutOfOrder
# Consumer names remembered per connection.
MAX_CONSUMERS = 1_000


class Holder:
    """The connection that received a message; outlives the connection itself."""

    __slots__ = ("consumers", "is_open", "user_name")

    def __init__(self, user_name: str | None) -> None:
        self.user_name = user_name
        self.is_open = True
        self.consumers: set[str] = set()  # names under which it has read streams

    def receives_as(self, consumer: str) -> None:
        if len(self.consumers) < MAX_CONSUMERS:
            self.consumers.add(consumer)


class MessageLease(msgspec.Struct, frozen=True, gc=False):
    token: int
    position: int
    consumer: str
    holder: Holder


class MessageLeases:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._kept: LeaseCache[MessageLease] = LeaseCache()

    # -- what was handed out -----------------------------------------------------------------------------------------

    def note(self, session: ClientSession, receipt: Receipt) -> list[bytes]:
        """Remember that the connection holds these messages, and return their ids."""
        token, consumer, holder = receipt.token, receipt.consumer, session.holder
        keys = [one.encode() for one in receipt.ids()]
        leases = [MessageLease(token, row[POSITION], consumer, holder) for row in receipt.rows]
        self._kept.put(receipt.queue, receipt.group, dict(zip(keys, leases, strict=True)))
        return keys

    # -- settling by id ----------------------------------------------------------------------------------------------

    def ack(
        self, session: ClientSession, queue: str, group: str, ids: Sequence[bytes], key_of: Callable[[bytes], bytes]
    ) -> Reply | Pending:
        """Ack messages by their ids. The reply to each is 1, 0 if there was nothing to ack, or an error. `key_of` gives
        the cache's spelling of an id; one that is cached as it is has that spelling."""
        leases = self._kept.find(queue, group, ids)
        if None in leases:
            ids = [key_of(one) if lease is None else one for one, lease in zip(ids, leases, strict=True)]
            leases = self._kept.find(queue, group, ids)
        holder = session.holder
        known: dict[bytes, MessageLease] = {}
        unknown: dict[int, bytes] = {}
        places: list[int | None] = []  # of the acks among the settlements
        for at, (key, lease) in enumerate(zip(ids, leases, strict=True)):
            place = None
            if lease is None or key in known:  # the second ack of a message finds nothing
                unknown[at] = key
            elif lease.holder is holder or session.may_settle(lease.consumer, lease.holder):
                place = len(known)
                known[key] = lease
            places.append(place)
        settles = [Settle(Event.ACK, "", lease.position, lease.token) for lease in known.values()]
        done = partial(self._acked, session, queue, group, known, places, unknown)
        return self._backend.settle(queue, group, settles, done) if settles else done(())

    def _acked(
        self,
        session: ClientSession,
        queue: str,
        group: str,
        known: dict[bytes, MessageLease],
        places: list[int | None],
        unknown: dict[int, bytes],
        results: Sequence[Settled],
    ) -> Reply | Pending:
        self._end(queue, group, known, results)
        settled = [_counted(one) for one in results]
        if len(settled) == len(places):
            return Replies(settled)
        outcomes = Replies([0 if place is None else settled[place] for place in places])
        if not unknown:
            return outcomes
        find = partial(self._find_each, session, queue, group, unknown.values())
        return self._backend.write(find, partial(self._ack_found, queue, group, outcomes, list(unknown)))

    def _end(self, queue: str, group: str, leases: dict[bytes, MessageLease], results: Sequence[Settled]) -> None:
        """Remove leases from the cache that were settled, or lost before."""
        if any([isinstance(one.error, OutOfOrder) for one in results]):
            kept = zip(leases.items(), results, strict=True)
            leases = {key: lease for (key, lease), one in kept if not isinstance(one.error, OutOfOrder)}
        self._kept.remove(queue, group, leases)

    def _find_each(
        self, session: ClientSession, queue: str, group: str, keys: Iterable[bytes]
    ) -> list[LeaseInfo | None]:
        """Inside an operation."""
        return [self._find(session, queue, group, key.decode()) if key else None for key in keys]

    def _ack_found(
        self, queue: str, group: str, outcomes: Replies, places: list[int], found: list[LeaseInfo | None]
    ) -> Reply | Pending:
        """Ack leases that were looked up, in a call of its own, coalesced with others. The second ack of a message
        finds nothing."""
        live = {lease.id: (place, lease) for place, lease in reversed(list(zip(places, found, strict=True))) if lease}
        if not live:
            return outcomes
        acks = [Settle(Event.ACK, lease.id, lease.position, lease.token) for _, lease in live.values()]

        def end(results: list[Settled]) -> Reply:
            for (place, _), settled in zip(live.values(), results, strict=True):
                outcomes[place] = _counted(settled)
            return outcomes

        return self._backend.settle(queue, group, acks, end)

    def _find(self, session: ClientSession, queue: str, group: str, message_id: str) -> LeaseInfo | None:
        """Inside an operation: the lease of a message that is not cached, if the client may settle it."""
        leases = self._backend.engine.leases(queue, group, ids=[message_id])
        if not leases or not self._may_settle_unknown(session, leases[0]):
            return None
        return leases[0]

    def _may_settle_unknown(self, session: ClientSession, lease: LeaseInfo) -> bool:
        is_older = lease.leased_at.timestamp() < self._kept.known_since
        return session.may_settle(lease.consumer, None) and (is_older or lease.consumer != NAMELESS)

    def settle(
        self, session: ClientSession, queue: str, group: str, settle: Settle, finish: Callable[[Settled], Reply]
    ) -> Pending:
        """Settle one message by id. With a token it is that lease or none."""
        key = settle.id.encode()
        held = self._kept.get(queue, group, key)
        if settle.token or held is None:
            look = partial(self._lease_of, session, queue, group, settle)
            return self._backend.write(look, lambda lease: self._settle_at(queue, group, settle, lease, finish))
        if not session.may_settle(held.consumer, held.holder):
            raise _not_held(settle.id)
        settle = _with_lease(settle, held.token, held.position)

        def done(results: list[Settled]) -> Reply:
            self._end(queue, group, {key: held}, results)
            return finish(results[0])

        return self._backend.settle(queue, group, [settle], done)

    def _lease_of(self, session: ClientSession, queue: str, group: str, settle: Settle) -> tuple[int, int]:
        """Inside an operation: token and position of a message that is not cached, or whose token the client gave."""
        if settle.token:
            return settle.token, self._backend.engine.position(queue, settle.id)
        lease = self._find(session, queue, group, settle.id)
        if lease is None:
            raise _not_held(settle.id)
        return lease.token, lease.position

    def _settle_at(
        self,
        queue: str,
        group: str,
        settle: Settle,
        lease: tuple[int, int],
        finish: Callable[[Settled], Reply],
    ) -> Pending:
        settles = [_with_lease(settle, *lease)]
        return self._backend.settle(queue, group, settles, lambda results: finish(results[0]))

    def extend(
        self,
        session: ClientSession,
        queue: str,
        group: str,
        message_id: str,
        seconds: float,
        token: int,
        finish: Callable[[int], Reply],
    ) -> Pending:
        held = self._kept.get(queue, group, message_id.encode())
        if not token and held is not None and not session.may_settle(held.consumer, held.holder):
            raise _not_held(message_id)
        engine = self._backend.engine

        def operation() -> int:
            lease: Any = held
            if token:
                lease = MessageLease(token, engine.position(queue, message_id), "", session.holder)
            elif held is None:
                lease = self._find(session, queue, group, message_id)
            ends = None if lease is None else engine.extend(queue, group, [(lease.token, lease.position)], seconds)[0]
            if ends is None:
                raise _not_held(message_id)
            return ends

        return self._backend.write(operation, finish)


def _counted(settled: Settled) -> Acked:
    """A repeated ack is not counted: another server may have answered the first with 1."""
    if settled.error is None:
        return 0 if settled.is_repeat else 1
    return settled.error if isinstance(settled.error, OutOfOrder) else 0


def _with_lease(settle: Settle, token: int, position: int) -> Settle:
    return msgspec.structs.replace(settle, position=position, token=token)


def _not_held(message_id: str) -> LeaseLost:
    return LeaseLost(
        f"message {message_id} is not in flight for this connection: its lease has ended or is another consumer's; "
        "nothing was changed"
    )
