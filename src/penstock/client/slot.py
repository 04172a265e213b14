"""Where a call is made from: the slot of a worker, or nowhere in particular.

A handler that waits for another message gives its slot back meanwhile, so that what it waits for can run. The client
knows no worker; it only tells whoever stands here.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Protocol


class Slot(Protocol):
    """The room in which a handler runs."""

    delivery: Any

    def leave(self) -> None:
        """The handler waits: another one may run."""

    def enter(self) -> None:
        """The handler goes on, as soon as there is room."""

    async def enter_async(self) -> None:
        """The same, without holding up the event loop."""


current_slot: ContextVar[Slot | None] = ContextVar("current_slot", default=None)
