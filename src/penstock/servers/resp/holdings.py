"""Who holds what was handed out, for the commands that settle by a message's id alone.

The store settles by token. A client of QGET knows ids only, so the server keeps for each message which connection has
received it and under which token. That connection may settle it; no other may, while the lease is another's:

- A lease taken under a name (CLIENT SETNAME, or CONSUMER of QRECEIVE) belongs to the name: connections with that name
  and user may settle it too, through any server of the store.
- A lease taken without a name belongs to its connection. Once that is closed, any other nameless connection of the same
  user may settle it, and so it is with leases that this server cannot know: those taken before it began, and those it
  had to forget because there were too many.
- Who shows the token may settle from anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.client.aio.call import Call
from penstock.domain.errors import LeaseLost, OutOfOrder
from penstock.domain.lifecycle import Event
from penstock.domain.observations import LeaseInfo
from penstock.domain.settlement import Settle, Settled
from penstock.engines.contract import POSITION, Receipt
from penstock.servers.resp.encoder import Reply
from penstock.servers.resp.remembering import Remembered
from penstock.servers.resp.work import Work

if TYPE_CHECKING:
    from penstock.servers.resp.door import Door
    from penstock.servers.resp.session import Session

# The consumer of connections without a name.
NAMELESS = "resp"
# What became of each ack: whether the message is done now, or what was wrong.
Acked = bool | OutOfOrder
# Instead of a place among the settlements that can be made at once.
REFUSED, UNKNOWN = -1, -2


class Holder:
    """A connection, as those who come later see it."""

    __slots__ = ("is_open", "user_name")

    def __init__(self, user_name: str | None) -> None:
        self.user_name = user_name
        self.is_open = True


class Holding(NamedTuple):
    token: int
    position: int
    consumer: str
    holder: Holder


class Holdings:
    def __init__(self, door: Door) -> None:
        self._door = door
        self._kept: Remembered[Holding] = Remembered()

    # -- what was handed out -----------------------------------------------------------------------------------------

    def note(self, session: Session, receipt: Receipt) -> None:
        token, consumer, holder = receipt.token, receipt.consumer, session.holder
        held = {receipt.id_of(row).encode(): Holding(token, row[POSITION], consumer, holder) for row in receipt.rows}
        self.put(receipt.queue, receipt.group, held)

    def put(self, queue: str, group: str, held: dict[bytes, Holding]) -> None:
        """By the messages' ids."""
        self._kept.put(queue, group, held)

    # -- settling by id ----------------------------------------------------------------------------------------------

    def ack_each(
        self,
        queue: str,
        group: str,
        wanted: Sequence[tuple[Session, Sequence[bytes]]],
        finish: Callable[[list[Acked]], Reply],
    ) -> Work:
        """Acks of several clients in one call, by the messages' ids; ends with an answer for each client. `finish` is
        told what became of each ack."""
        known: dict[bytes, Holding] = {}
        places = [[self._place(session, queue, group, key, known) for key in keys] for session, keys in wanted]
        settles = [Settle(Event.ACK, "", held.position, held.token) for held in known.values()]

        def done(results: list[Settled]) -> Reply:
            told = [
                self._told(queue, group, *one, settled) for one, settled in zip(known.items(), results, strict=True)
            ]
            return [answer(*one, own, told) for one, own in zip(wanted, places, strict=True)]

        def answer(session: Session, keys: Sequence[bytes], own: list[int], told: list[Acked]) -> Reply | Work:
            outcomes = [place >= 0 and told[place] for place in own]
            unknown = [at for at, place in enumerate(own) if place == UNKNOWN]
            if not unknown:
                return finish(outcomes)
            look = partial(self._ack_found, session, queue, group, [keys[at] for at in unknown])
            return Work(Call(look), lambda found: finish(_filled(outcomes, unknown, found)))

        return Work(self._door.settling(queue, group, settles) if settles else Call(list), done)

    def _place(self, session: Session, queue: str, group: str, key: bytes, known: dict[bytes, Holding]) -> int:
        """Where its ack stands among the settlements that can be made at once, if it may be made at once. Of an ack
        that is said twice the second one finds nothing."""
        held = self._kept.get(queue, group, key)
        if held is None or key in known:
            return UNKNOWN
        if not session.may_settle(held.consumer, held.holder):
            return REFUSED
        known[key] = held
        return len(known) - 1

    def _told(self, queue: str, group: str, key: bytes, held: Holding, settled: Settled) -> Acked:
        """Forgets what nobody holds any more; somebody else may have received it meanwhile."""
        if isinstance(settled.error, OutOfOrder):
            return settled.error
        if self._kept.get(queue, group, key) is held:
            self._kept.take(queue, group, [key])
        return settled.error is None

    def _ack_found(self, session: Session, queue: str, group: str, keys: Sequence[bytes]) -> list[Acked]:
        """Inside a call."""
        told: list[Acked] = []
        for key in keys:
            lease = self._find(session, queue, group, key.decode()) if key else None
            if lease is None:
                told.append(False)
                continue
            ack = Settle(Event.ACK, lease.id, lease.position, lease.token)
            [settled] = self._door.engine.settle(queue, group, [ack])
            told.append(settled.error if isinstance(settled.error, OutOfOrder) else settled.ok)
        return told

    def _find(self, session: Session, queue: str, group: str, message_id: str) -> LeaseInfo | None:
        """Inside a call: the lease of a message that this server has not handed out, if the client may settle it."""
        leases = self._door.engine.leases(queue, group, ids=[message_id])
        if not leases or not self._may_settle_unknown(session, leases[0]):
            return None
        return leases[0]

    def _may_settle_unknown(self, session: Session, lease: LeaseInfo) -> bool:
        is_older = lease.leased_at.timestamp() < self._kept.known_since
        return session.may_settle(lease.consumer, None) and (is_older or lease.consumer != NAMELESS)

    def settle(
        self, session: Session, queue: str, group: str, settle: Settle, finish: Callable[[Settled], Reply]
    ) -> Work:
        """One message, by its id; `settle` says how. With a token it is that lease or none."""
        key = settle.id.encode()
        held = self._kept.get(queue, group, key)
        if settle.token:
            return Work(Call(partial(self._settle_shown, queue, group, settle)), lambda results: finish(results[0]))
        if held is None:
            return Work(Call(partial(self._settle_found, session, queue, group, settle)), finish)
        if not session.may_settle(held.consumer, held.holder):
            raise _not_held(settle.id)
        settle = _with_lease(settle, held.token, held.position)

        def done(results: list[Settled]) -> Reply:
            self._told(queue, group, key, held, results[0])
            return finish(results[0])

        return Work(self._door.settling(queue, group, [settle]), done)

    def _settle_shown(self, queue: str, group: str, settle: Settle) -> list[Settled]:
        """Inside a call: by the token that the client shows."""
        engine = self._door.engine
        return engine.settle(queue, group, [_with_lease(settle, settle.token, engine.position(queue, settle.id))])

    def _settle_found(self, session: Session, queue: str, group: str, settle: Settle) -> Settled:
        """Inside a call."""
        lease = self._find(session, queue, group, settle.id)
        if lease is None:
            raise _not_held(settle.id)
        [settled] = self._door.engine.settle(queue, group, [_with_lease(settle, lease.token, lease.position)])
        return settled

    def extend(
        self,
        session: Session,
        queue: str,
        group: str,
        message_id: str,
        seconds: float,
        token: int,
        finish: Callable[[int], Reply],
    ) -> Work:
        held = self._kept.get(queue, group, message_id.encode())
        if not token and held is not None and not session.may_settle(held.consumer, held.holder):
            raise _not_held(message_id)
        engine = self._door.engine

        def operation() -> int:
            lease: Any = held
            if token:
                lease = Holding(token, engine.position(queue, message_id), "", session.holder)
            elif held is None:
                lease = self._find(session, queue, group, message_id)
            ends = None if lease is None else engine.extend(queue, group, [(lease.token, lease.position)], seconds)[0]
            if ends is None:
                raise _not_held(message_id)
            return ends

        return Work(Call(operation), finish)


def _filled(outcomes: list[Acked], places: list[int], found: list[Acked]) -> list[Acked]:
    for place, outcome in zip(places, found, strict=True):
        outcomes[place] = outcome
    return outcomes


def _with_lease(settle: Settle, token: int, position: int) -> Settle:
    return Settle(settle.event, settle.id, position, token, settle.reason, settle.delay_seconds)


def _not_held(message_id: str) -> LeaseLost:
    return LeaseLost(
        f"message {message_id} is not in flight for this connection: its lease has ended or is another consumer's; "
        "nothing was changed"
    )
