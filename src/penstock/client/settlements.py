"""Validation of settlements, and their grouping into engine calls. Without I/O: both clients use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from penstock.client.view import DeliveryView
from penstock.domain.errors import InvalidInput, LeaseLost, OutOfOrder, Refused
from penstock.domain.lifecycle import Event
from penstock.domain.results import DeadLetter
from penstock.domain.settlement import (
    Ack,
    Leased,
    Nak,
    Reject,
    Reschedule,
    Settle,
    Settled,
    Settlement,
    error_code,
    reason_text,
)
from penstock.domain.validation import check_integer, check_seconds, from_time, shown
from penstock.engines.contract import POSITION, Edge, Receipt, Row

MAX_TOKEN = (1 << 63) - 1
SEEK_TARGETS = "a position, a time, 'start' or 'end'"


class Held(msgspec.Struct, frozen=True):
    """A delivery for callers that only have its id and token."""

    id: str
    token: int
    queue: str
    group: str
    position: int


_EVENTS = {Ack: Event.ACK, Nak: Event.NAK, Reject: Event.REJECT, Reschedule: Event.RESCHEDULE}


def by_group(settlements: Sequence[Settlement], queue: str) -> Iterator[tuple[str, list[int], list[Settle]]]:
    """For each group: the indexes of its settlements, and the validated settlements."""
    groups: dict[str, tuple[list[int], list[Settle]]] = {}
    for place, settlement in enumerate(settlements):
        settle = checked(settlement, queue)
        places, settles = groups.setdefault(settlement.delivery.group, ([], []))
        places.append(place)
        settles.append(settle)
    for group, (places, settles) in groups.items():
        yield group, places, settles


def checked(settlement: Settlement, queue: str) -> Settle:
    event = _EVENTS.get(type(settlement))
    if event is None:
        raise InvalidInput(f"settle takes Ack, Nak, Reject or Reschedule, not {shown(settlement)}")
    delivery = settlement.delivery
    _check_queue(delivery, queue)
    token = getattr(delivery, "token", None)
    if token is None:
        raise InvalidInput(f"{type(settlement).__name__} takes a delivery from receive, not {shown(delivery)}")
    check_integer("token", token, 0, MAX_TOKEN)
    delay = settlement.delay_seconds if isinstance(settlement, Nak | Reschedule) else None
    if delay is not None:
        delay = max(0, check_seconds("delay_seconds", delay, minimum=-1e18))
    code = error_code(settlement.code, settlement.reason) if isinstance(settlement, Nak | Reject) else None
    return Settle(event, delivery.id, delivery.position, delivery.token, reason_text(settlement.reason), delay, code)


def by_receive(deliveries: Sequence[DeliveryView], queue: str) -> Iterator[tuple[Receipt, list[Row], Sequence[int]]]:
    """Group deliveries by receive: the receipt, their rows, and their indexes."""
    try:
        every = [delivery._receipt for delivery in deliveries]
    except AttributeError:
        raise InvalidInput(
            f"ack_many takes a list of deliveries as receive gives them, not {shown(deliveries)}"
        ) from None
    if every and every.count(every[0]) == len(every):
        _check_queue(every[0], queue)
        yield every[0], [delivery._row for delivery in deliveries], range(len(deliveries))
        return
    receipts = dict.fromkeys(every)
    for receipt in receipts:
        _check_queue(receipt, queue)
    for receipt in receipts:
        places = [place for place, one in enumerate(every) if one is receipt]
        yield receipt, [deliveries[place]._row for place in places], places


def is_whole(receipt: Receipt, rows: list[Row]) -> bool:
    """Whether these are all messages of the receive, each once. Only then may an engine compare their number and sum
    with those of the lease: other messages can have the same."""
    # The first comparison is that of identical rows: it is quick, and enough for what a receive has returned.
    return rows == receipt.rows or len(rows) == len(receipt.rows) == len({row[POSITION] for row in rows})


def not_acked(refused: Sequence[Settled], count: int) -> Refused:
    """The error for acks of which some were refused."""
    names = ", ".join([one.id for one in refused[:10]])
    if all(isinstance(one.error, OutOfOrder) for one in refused):
        return OutOfOrder(
            f"{len(refused)} of {count} messages come after others of their lease that are still in flight, and the "
            f"queue is ordered: {names}"
        )
    return LeaseLost(f"{len(refused)} of {count} leases were lost, of messages {names}")


def checked_target(target: int | datetime | str) -> tuple[int | str, bool]:
    """Return the target, and whether it is a time."""
    if isinstance(target, datetime):
        return from_time("target", target), True
    if target in ("start", "end"):
        return str(target), False
    if isinstance(target, bool) or not isinstance(target, int):
        raise InvalidInput(f"seek goes to {SEEK_TARGETS}, not {shown(target)}")
    return check_integer("position", target, 0, 1 << 48), False


def checked_edge(before: datetime | DeadLetter | Edge | None) -> Edge | None:
    """The edge at which a page of dead letters begins."""
    if isinstance(before, tuple):
        return before
    if isinstance(before, DeadLetter):
        return from_time("before", before.died_at), before.position, before.group
    return None if before is None else (from_time("before", before), 0, "")


def _check_queue(leased: Leased | Receipt, queue: str) -> None:
    theirs = getattr(leased, "queue", queue)
    if theirs != queue:
        raise InvalidInput(f"a delivery of queue {shown(theirs)} cannot be settled through queue {shown(queue)}")
