"""What is handed to the engine's thread: a call with its operation, and where its outcome goes."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Protocol


class Answer(Protocol):
    """Where the outcome of a call goes: a future, or something that a server has made for the purpose."""

    def cancelled(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: Any, /) -> None: ...


class Call:
    """One call on its way to the engine.

    `items` are handed to the operation when there are any. Calls with equal `key` may be run as one by `merge`, which
    gives an outcome for each. An outcome that nobody awaits any more goes to `unwanted`. `callers` is how many are
    answered by it.
    """

    __slots__ = ("callers", "future", "items", "key", "merge", "operation", "outcome", "unwanted", "weight")

    future: Answer
    outcome: Any

    def __init__(
        self,
        operation: Callable[..., Any],
        items: Sequence[Any] | None = None,
        key: Hashable = None,
        merge: Callable[[Sequence[Call]], list[Any]] | None = None,
        unwanted: Callable[[Any], None] | None = None,
        weight: int = 1,
        callers: int = 1,
    ) -> None:
        self.operation = operation
        self.items = items
        self.key = key
        self.merge = merge
        self.unwanted = unwanted
        self.weight = weight if items is None else len(items)
        self.callers = callers

    def run(self) -> Any:
        return self.operation() if self.items is None else self.operation(self.items)

    def begin(self) -> bool:
        """Leave out what nobody awaits any more, and say whether anything is left to do."""
        return not self.future.cancelled()

    def parts(self) -> list[Callable[[], Any]]:
        """What to run when it failed along with others, so that each suffers for its own fault only."""
        return [self.run]

    def assemble(self, outcomes: list[Any]) -> Any:
        """The outcome, from those of its parts."""
        return outcomes[0]


class SharedCall(Call):
    """One call that several callers make together, with one item each. Each gets its own result, in a list, as if it
    had made the call alone."""

    __slots__ = ("futures",)

    items: list[Any]

    def __init__(
        self, operation: Callable[..., Any], key: Hashable, merge: Callable[[Sequence[Call]], list[Any]]
    ) -> None:
        super().__init__(operation, [], key, merge, callers=0)
        self.futures: list[asyncio.Future[list[Any]]] = []

    def join(self, item: Any, future: asyncio.Future[list[Any]]) -> None:
        self.items.append(item)
        self.futures.append(future)
        self.weight += 1
        self.callers += 1

    def begin(self) -> bool:
        if any([future.cancelled() for future in self.futures]):
            kept = [place for place, future in enumerate(self.futures) if not future.cancelled()]
            self.items[:] = [self.items[place] for place in kept]
            self.futures[:] = [self.futures[place] for place in kept]
            self.weight = len(kept)
        return bool(self.futures)

    def parts(self) -> list[Callable[[], Any]]:
        return [partial(self.operation, [item]) for item in self.items]

    def assemble(self, outcomes: list[Any]) -> list[Any]:
        return [one if isinstance(one, BaseException) else one[0] for one in outcomes]


class SharedAnswer:
    """For each who joined a call, its own outcome."""

    __slots__ = ("futures",)

    def __init__(self, futures: list[asyncio.Future[list[Any]]]) -> None:
        self.futures = futures

    def cancelled(self) -> bool:
        """Never as a whole."""
        return False

    def set_result(self, results: list[Any], /) -> None:
        for future, result in zip(self.futures, results, strict=True):
            if future.cancelled():
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result([result])

    def set_exception(self, exception: BaseException, /) -> None:
        self.set_result([own_copy(exception) for _ in self.futures])


# -- outcomes -------------------------------------------------------------------------------------------------------


def attempt(operation: Callable[[], Any]) -> Any:
    try:
        return operation()
    except BaseException as error:
        # Anything at all: a task awaits the outcome, and the thread must live on for the others.
        return error


def own_copy(error: BaseException) -> BaseException:
    """For each of several tasks: a traceback grows wherever its exception is raised."""
    own = copy.copy(error)
    own.__cause__ = error.__cause__
    return own.with_traceback(error.__traceback__)
