"""What is known about one queue: whether a receive would bring anything."""

from __future__ import annotations

from enum import Enum

MISS_SECONDS = 0.002
LONGEST_MISS_SECONDS = 0.5
ENOUGH_MISSES = 4


class State(Enum):
    UNKNOWN = "unknown"
    """Ask the store (`ready_in`) before the next receive."""
    READY = "ready"
    """A receive should bring messages."""
    EMPTY = "empty"
    """There is nothing, until something is committed or `check_at` has come."""
    CONTENDED = "contended"
    """Messages are there, but a receive brought none: other consumers are faster. Try again at `check_at`."""
    BLOCKED = "blocked"
    """Messages are there, but no slot of the worker is free for their priority, until a slot or a commit changes it."""


class Demand:
    def __init__(self) -> None:
        self.state = State.UNKNOWN
        self.check_at: float | None = None
        self._misses = 0

    def committed(self, receives_lightly: bool) -> None:
        """Something was committed somewhere. Where a receive in vain disturbs nobody it is the quickest way to see."""
        if self.state is State.EMPTY:
            self._become(State.READY if receives_lightly else State.UNKNOWN)
        elif self.state is State.BLOCKED:
            self._become(State.READY)

    def slot_freed(self) -> None:
        if self.state is State.BLOCKED:
            self._become(State.READY)

    def passed(self, now: float) -> None:
        """Time has passed: what was to come may be there."""
        if self.check_at is not None and now >= self.check_at:
            self._become(State.UNKNOWN if self.state is State.EMPTY else State.READY)

    def checked(self, seconds: float | None, now: float) -> None:
        """The store's answer: seconds until a receive could bring something, None for not before a commit."""
        if seconds != 0:
            self._misses = 0
            self._become(State.EMPTY, None if seconds is None else now + seconds)
        elif self._misses:
            self._become(State.CONTENDED, now + min(MISS_SECONDS * 2**self._misses, LONGEST_MISS_SECONDS))
        else:
            self._become(State.READY)

    def received(self, count: int, limit: int) -> None:
        """A receive brought fewer than it may have: whether there are more is not known."""
        self._misses = 0 if count else self._misses + 1
        self._become(State.READY if count == limit else State.UNKNOWN)

    def blocked(self) -> None:
        self._become(State.BLOCKED)

    def doubted(self) -> None:
        """Whether there is more matters more than usual."""
        if self.state is State.READY:
            self._become(State.UNKNOWN)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do in this queue now."""
        return self.state is State.EMPTY or (self.state is State.CONTENDED and self._misses >= ENOUGH_MISSES)

    @property
    def awaits_commit(self) -> bool:
        return self.state in (State.EMPTY, State.BLOCKED, State.CONTENDED)

    def _become(self, state: State, check_at: float | None = None) -> None:
        self.state = state
        self.check_at = check_at
