"""The worker's slot in which a call is made, if any.

A handler that waits for another message frees its slot, so that the other message can be handled. The client depends
on this protocol only, not on workers.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Protocol


class Slot(Protocol):
    """A slot in which a handler runs."""

    delivery: Any

    def leave(self) -> None:
        """Free the slot for another handler."""

    def enter(self) -> None:
        """Wait for a free slot and occupy it."""

    async def enter_async(self) -> None:
        """The same, without blocking the event loop."""


current_slot: ContextVar[Slot | None] = ContextVar("current_slot", default=None)
