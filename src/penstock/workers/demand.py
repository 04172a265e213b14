"""What the fetcher knows about one queue: whether a receive would return messages."""

from __future__ import annotations

from enum import Enum

MISS_SECONDS = 0.002
LONGEST_MISS_SECONDS = 0.5
ENOUGH_MISSES = 4


class Supply(Enum):
    UNKNOWN = "unknown"
    """Ask the store (`ready_in`) before the next receive."""
    READY = "ready"
    """A receive should return messages."""
    EMPTY = "empty"
    """Nothing to receive until a commit, or until `check_at`."""
    CONTENDED = "contended"
    """There are messages, but a receive returned none: other consumers are faster. Retry at `check_at`."""
    BLOCKED = "blocked"
    """There are messages, but no slot is free for their priority, until a slot is freed or a commit comes."""


class Demand:
    def __init__(self) -> None:
        self.state = Supply.UNKNOWN
        self.check_at: float | None = None
        self._misses = 0

    def committed(self, receives_lightly: bool) -> None:
        """After any commit. Where an empty receive is cheap, receive at once instead of asking first."""
        if self.state is Supply.EMPTY:
            self._become(Supply.READY if receives_lightly else Supply.UNKNOWN)
        elif self.state is Supply.BLOCKED:
            self._become(Supply.READY)

    def slot_freed(self) -> None:
        if self.state is Supply.BLOCKED:
            self._become(Supply.READY)

    def passed(self, now: float) -> None:
        """Leave a waiting state once `check_at` has come."""
        if self.check_at is not None and now >= self.check_at:
            self._become(Supply.UNKNOWN if self.state is Supply.EMPTY else Supply.READY)

    def checked(self, seconds: float | None, now: float) -> None:
        """The result of `ready_in`: seconds until a receive could return something, None for not before a commit."""
        if seconds != 0:
            self._misses = 0
            self._become(Supply.EMPTY, None if seconds is None else now + seconds)
        elif self._misses:
            self._become(Supply.CONTENDED, now + min(MISS_SECONDS * 2**self._misses, LONGEST_MISS_SECONDS))
        else:
            self._become(Supply.READY)

    def received(self, count: int, limit: int) -> None:
        """After a receive. Fewer messages than the limit do not prove that there are no more."""
        self._misses = 0 if count else self._misses + 1
        self._become(Supply.READY if count == limit else Supply.UNKNOWN)

    def blocked(self) -> None:
        self._become(Supply.BLOCKED)

    def recheck(self) -> None:
        """Ask the store again before the next receive."""
        if self.state is Supply.READY:
            self._become(Supply.UNKNOWN)

    @property
    def is_idle(self) -> bool:
        """Whether this queue has nothing to do now."""
        return self.state is Supply.EMPTY or (self.state is Supply.CONTENDED and self._misses >= ENOUGH_MISSES)

    @property
    def awaits_commit(self) -> bool:
        return self.state in (Supply.EMPTY, Supply.BLOCKED, Supply.CONTENDED)

    def _become(self, state: Supply, check_at: float | None = None) -> None:
        self.state = state
        self.check_at = check_at
