"""Calls on their way to the engine: an operation, its callers, and where each caller's outcome goes."""

from __future__ import annotations

import copy
from asyncio import InvalidStateError
from collections.abc import Callable, Hashable, Sequence
from enum import IntEnum
from operator import attrgetter
from typing import Any, Protocol

import msgspec


class Completion(Protocol):
    """Where the outcome of a call goes: a future, or a reply that a server is waiting to write."""

    def cancelled(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: Any, /) -> None: ...


class Phase(IntEnum):
    """When an operation runs within its transaction."""

    SETTLE = 0
    WRITE = 1
    RECEIVE = 2
    # In no transaction with others: it takes long, or begins its own.
    ALONE = 3
    # On the reader's thread.
    READ = 4


class Operation:
    """What calls have in common that can run as one: `run(items)` returns one result per item.

    An operation that is called without items runs as `run()` for one caller. `key` orders settlements and receives, so
    that every transaction takes its locks in the same order. `discard` is given the outcome of a caller that is gone.
    """

    __slots__ = ("discard", "phase", "place", "run")

    def __init__(
        self,
        run: Callable[..., Any],
        phase: Phase = Phase.WRITE,
        key: Hashable = None,
        discard: Callable[[Any], None] | None = None,
    ) -> None:
        self.run = run
        self.phase = phase
        # Writes keep the order of their calls.
        self.place = (phase, "" if phase is Phase.WRITE else str(key))
        self.discard = discard


class Call(msgspec.Struct, eq=False):
    """One run of an operation, for one or more callers: each is a completion and its number of items."""

    operation: Operation
    items: list[Any] | None
    callers: list[tuple[Completion, int]]
    outcomes: Sequence[Any] = ()

    def drop_cancelled(self) -> bool:
        """Drop the callers that were cancelled, and return whether any is left."""
        if len(self.callers) == 1:
            return not self.callers[0][0].cancelled()
        if any([completion.cancelled() for completion, _ in self.callers]):
            parts = [part for part in self.split() if not part.callers[0][0].cancelled()]
            self.callers = [part.callers[0] for part in parts]
            if self.items is not None:
                self.items = [item for part in parts for item in part.items or ()]
        return bool(self.callers)

    def run(self) -> Sequence[Any]:
        """Return the outcome of each caller."""
        if self.items is None:
            return (self.operation.run(),)
        results = self.operation.run(self.items)
        # Never hand out what belongs to another caller.
        assert len(results) == len(self.items), f"{len(results)} results for {len(self.items)} items"
        if len(self.callers) == 1:
            return (results,)
        if len(self.callers) == len(results):
            return [[result] for result in results]
        remaining = iter(results)
        return [[next(remaining) for _ in range(count)] for _, count in self.callers]

    def split(self) -> list[Call]:
        """One call per caller."""
        if self.items is None:
            return [self]
        remaining = iter(self.items)
        return [Call(self.operation, [next(remaining) for _ in range(caller[1])], [caller]) for caller in self.callers]

    def fail(self, error: BaseException) -> None:
        self.outcomes = own_copies(error, len(self.callers))

    def deliver(self) -> None:
        discard = self.operation.discard
        for (completion, _), outcome in zip(self.callers, self.outcomes, strict=True):
            is_error = isinstance(outcome, BaseException)
            if discard is not None and completion.cancelled():
                if not is_error:
                    discard(outcome)
                continue
            try:
                completion.set_exception(outcome) if is_error else completion.set_result(outcome)
            except InvalidStateError:  # a future that was cancelled
                continue


# The order in which the calls of a group run.
place_of = attrgetter("operation.place")


def own_copies(error: BaseException, count: int) -> list[BaseException]:
    return [error] if count == 1 else [own_copy(error) for _ in range(count)]


def own_copy(error: BaseException) -> BaseException:
    """A copy for each of several tasks: a traceback grows wherever its exception is raised."""
    own = copy.copy(error)
    own.__cause__ = error.__cause__
    return own.with_traceback(error.__traceback__)
