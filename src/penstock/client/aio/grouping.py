"""One transaction for a group of calls (group commit): the cost of a durable commit is shared by all of them.

Sends to one queue become one send, settlements of one group one settlement. Calls in a group were made at the same
time, so their order is free; it is kept where a program could see it: messages of a queue keep the order in which they
were sent, and a call that is not merged divides those before it from those after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, cast

from penstock.client.aio.call import Call, attempt, own_copy
from penstock.domain.errors import StoreError
from penstock.domain.message import PLAIN, Draft
from penstock.engines.contract import Engine, Receipt

# The key of a call that must not share a transaction.
ALONE = "alone"


def run_together(engine: Engine, calls: Sequence[Call]) -> None:
    """Set the outcome of each call."""
    gathered: list[Call] = []
    for call in calls:
        if call.key is not ALONE:
            gathered.append(call)
            continue
        _commit(engine, gathered)
        gathered = []
        call.outcome = attempt(call.run)
    _commit(engine, gathered)


def _commit(engine: Engine, calls: list[Call]) -> None:
    bundles = _bundled(calls)
    outcomes = _in_one_transaction(engine, [partial(_run, bundle) for bundle in bundles])
    again: list[Call] = []
    for bundle, outcome in zip(bundles, outcomes, strict=True):
        if not isinstance(outcome, BaseException):
            for call, own in zip(bundle, outcome, strict=True):
                call.outcome = own
        elif isinstance(outcome, StoreError) or sum(len(call.parts()) for call in bundle) == 1:
            for call in bundle:
                call.outcome = own_copy(outcome)
        else:
            # One of them is at fault, and the others must not suffer for it.
            again += bundle
    _commit_parts(engine, again)


def _commit_parts(engine: Engine, calls: list[Call]) -> None:
    parts = [call.parts() for call in calls]
    outcomes = iter(_in_one_transaction(engine, [part for own in parts for part in own]))
    for call, own in zip(calls, parts, strict=True):
        call.outcome = call.assemble([next(outcomes) for _ in own])


def _bundled(calls: list[Call]) -> list[list[Call]]:
    """Calls that can run as one, in the order of their first; receives after the rest, so that they find what the
    others send and free."""
    bundles: list[list[Call]] = []
    since_divide: dict[Any, list[Call]] = {}

    def divide() -> None:
        merged = list(since_divide.values())
        bundles.extend(bundle for bundle in merged if bundle[0].merge not in LAST)
        bundles.extend(bundle for bundle in merged if bundle[0].merge in LAST)
        since_divide.clear()

    for call in calls:
        if call.key is not None:
            since_divide.setdefault(call.key, []).append(call)
        else:
            divide()
            bundles.append([call])
    divide()
    return bundles


def _in_one_transaction(engine: Engine, operations: list[Callable[[], Any]]) -> list[Any]:
    if len(operations) <= 1:
        return [attempt(operation) for operation in operations]
    outcomes = attempt(partial(engine.together, operations))
    return [own_copy(outcomes) for _ in operations] if isinstance(outcomes, BaseException) else list(outcomes)


def _run(bundle: list[Call]) -> list[Any]:
    merge = bundle[0].merge
    return [bundle[0].run()] if merge is None else merge(bundle)


# -- ways to merge ---------------------------------------------------------------------------------------------------


def merge_items(calls: Sequence[Call]) -> list[Any]:
    """One operation on the items of all, which answers with a result for each item."""
    if len(calls) == 1:
        return [calls[0].run()]
    results = calls[0].operation([item for call in calls for item in call.items or ()])
    if len(results) == len(calls) and all([call.weight == 1 for call in calls]):
        return [[result] for result in results]
    outcomes = []
    start = 0
    for call in calls:
        outcomes.append(results[start : start + call.weight])
        start += call.weight
    # Never hand out what belongs to another call.
    assert start == len(results), f"{len(results)} results for {start} items"
    return outcomes


def merge_receives(calls: Sequence[Call]) -> list[Any]:
    """Each for itself, as each has its own token; but when one comes back empty, so would all after it."""
    receipts: list[Receipt] = []
    for call in calls:
        is_dry = bool(receipts) and not receipts[-1].rows
        receipts.append(receipts[-1] if is_dry else call.run())
    return receipts


class Shareable(Protocol):
    """A receive that can be made together with others of its kind."""

    def share(self, others: Sequence[Any]) -> list[Receipt]:
        """A receipt for each of the others, this one among them, dealt out in the order in which they asked."""


def share_receive(calls: Sequence[Call]) -> list[Any]:
    """One receive for all; the operations are `Shareable`."""
    if len(calls) == 1:
        return [calls[0].run()]
    first = cast(Shareable, calls[0].operation)
    return first.share([call.operation for call in calls])


# Merged calls that run after all others of their group.
LAST = (merge_receives, share_receive)


def can_merge(messages: Sequence[Draft]) -> bool:
    """Whether sends may be joined: not when the state of the queue can refuse one of them or answer for it."""
    if len(messages) == 1 and messages[0][2] is PLAIN:
        return True
    return all(
        options is PLAIN or (options.id is None and options.address is None and options.batch is None)
        for _, _, options in messages
    )
