"""The worker's slot in which a call is made, if any.

A handler that waits for another message gives its slot back meanwhile, so that what it waits for can run. The client
knows no worker, only this protocol.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Protocol


class Slot(Protocol):
    """A slot in which a handler runs."""

    delivery: Any

    def leave(self) -> None:
        """The handler blocks: another one may run."""

    def enter(self) -> None:
        """Wait for a free slot, then go on."""

    async def enter_async(self) -> None:
        """The same, without blocking the event loop."""


current_slot: ContextVar[Slot | None] = ContextVar("current_slot", default=None)
