"""Holders of pending stream entries, for XACK, which names an entry by its id alone.

As in Redis, any client that knows the id may acknowledge the current delivery. The exception is a connection that
received the entry as one consumer and lost it to another: its XACK returns 0 and does not affect the new holder, unless
the connection also receives under that name. An entry is acknowledged once: of several XACKs, also through different
servers, one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.lifecycle import Event
from penstock.domain.results import LeaseInfo
from penstock.domain.settlement import Settle, Settled
from penstock.engines.contract import ATTEMPT, POSITION, Receipt
from penstock.servers.resp.encoder import Reply
from penstock.servers.resp.lease_cache import LeaseCache
from penstock.servers.resp.message_leases import Holder
from penstock.servers.resp.pending import Pending

if TYPE_CHECKING:
    from penstock.servers.resp.backend import Backend
    from penstock.servers.resp.session import ClientSession

# Finds the lease of an entry by its id, inside an operation.
Find = Callable[[bytes], LeaseInfo | None]
# Connections remembered per entry that lost it to another consumer; the latest are kept.
MAX_LOSERS = 16


class EntryLease(msgspec.Struct, frozen=True, gc=False):
    """`holder` is None if another server delivered the entry; `lost_by` held it before, as other consumers."""

    token: int
    position: int
    consumer: str
    holder: Holder | None
    lost_by: tuple[Holder, ...] = ()

    def is_lost_to(self, holder: Holder) -> bool:
        return holder in self.lost_by and self.consumer not in holder.consumers


class EntryLeases:
    """Recent leases are cached by entry id; others are looked up in the store."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._kept: LeaseCache[EntryLease] = LeaseCache()

    # -- what was handed out -----------------------------------------------------------------------------------------

    def note(self, holder: Holder, receipt: Receipt, names: Sequence[bytes]) -> None:
        """`names` are the ids of the entries."""
        holder.receives_as(receipt.consumer)
        token, consumer = receipt.token, receipt.consumer
        leases = [EntryLease(token, row[POSITION], consumer, holder) for row in receipt.rows]
        for place, row in enumerate(receipt.rows):
            if row[ATTEMPT] > 1:
                before = self._kept.get(receipt.queue, receipt.group, names[place])
                leases[place] = _after(before, token, row[POSITION], consumer, holder)
        self.put(receipt.queue, receipt.group, dict(zip(names, leases, strict=True)))

    def put(self, queue: str, group: str, leases: dict[bytes, EntryLease]) -> None:
        """Cache leases by entry id."""
        self._kept.put(queue, group, leases)

    # -- acknowledging -----------------------------------------------------------------------------------------------

    def ack(
        self,
        session: ClientSession,
        queue: str,
        group: str,
        names: Sequence[bytes],
        find: Find,
        finish: Callable[[list[bool]], Reply],
    ) -> Reply | Pending:
        """Ack entries by id; `finish` gets whether each was pending and is done now."""
        leases = self._take(session, queue, group, names)
        settles = [Settle(Event.ACK, "", one.position, one.token) for one in leases if one is not None]

        def done(results: Sequence[Settled]) -> Reply | Pending:
            settled = iter(results)
            outcomes = [one is not None and _counts(next(settled)) for one in leases]
            if all(outcomes):
                return finish(outcomes)
            return self._look_up(session, queue, group, names, leases, outcomes, find, finish)

        return self._backend.settle(queue, group, settles, done) if settles else done(())

    def _take(self, session: ClientSession, queue: str, group: str, names: Sequence[bytes]) -> list[EntryLease | None]:
        """Remove and return the cached lease of each entry, because a lease is settled once."""
        leases = self._kept.take(queue, group, names)
        for place, lease in enumerate(leases):
            if lease is not None and lease.lost_by and lease.is_lost_to(session.holder):
                self.put(queue, group, {names[place]: lease})
                leases[place] = None
        return leases

    def _look_up(
        self,
        session: ClientSession,
        queue: str,
        group: str,
        names: Sequence[bytes],
        stale: list[EntryLease | None],
        outcomes: list[bool],
        find: Find,
        finish: Callable[[list[bool]], Reply],
    ) -> Pending:
        """Entries without a settled lease were taken over, were delivered by another server, or their lease has ended:
        look up the current leases, and settle those in a call of its own, coalesced with others."""
        missing = [place for place, ok in enumerate(outcomes) if not ok]

        def settle(found: list[LeaseInfo | None]) -> Reply | Pending:
            live = {
                names[place]: (place, lease)
                for place, lease in zip(missing, found, strict=True)
                if lease is not None and not self._is_lost(session, queue, group, names[place], stale[place], lease)
            }
            if not live:
                return finish(outcomes)
            acks = [Settle(Event.ACK, lease.id, lease.position, lease.token) for _, lease in live.values()]

            def end(results: list[Settled]) -> Reply:
                for (place, _), result in zip(live.values(), results, strict=True):
                    outcomes[place] = _counts(result)
                return finish(outcomes)

            return self._backend.settle(queue, group, acks, end)

        return self._backend.write(lambda: [find(names[place]) for place in missing], settle)

    def _is_lost(
        self, session: ClientSession, queue: str, group: str, name: bytes, stale: EntryLease | None, lease: LeaseInfo
    ) -> bool:
        """Whether the connection held the entry before, as another consumer than the current one."""
        known = self._kept.get(queue, group, name)
        if known is None or known.token != lease.token:
            known = _after(stale or known, lease.token, lease.position, lease.consumer, None)
        if not known.is_lost_to(session.holder):
            return False
        self.put(queue, group, {name: known})
        return True


def _after(before: EntryLease | None, token: int, position: int, consumer: str, holder: Holder | None) -> EntryLease:
    if before is None:
        return EntryLease(token, position, consumer, holder)
    lost_by = before.lost_by
    if before.holder is not None and before.consumer != consumer:
        lost_by = (*lost_by, before.holder)[-MAX_LOSERS:]
    return EntryLease(token, position, consumer, holder, tuple(one for one in lost_by if one is not holder))


def _counts(settled: Settled) -> bool:
    """Whether this settlement ended the delivery."""
    return settled.error is None and not settled.is_repeat
