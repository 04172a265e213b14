"""The tracing interface of the client, which depends on no tracing library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from penstock.domain.message import Draft

# Called at the end of a send, with its ids or its error.
Finish = Callable[[list[str] | None, BaseException | None], None]


class Tracing(Protocol):
    def sending(self, queue: str, drafts: list[Draft]) -> tuple[list[Draft], Finish]:
        """Return the messages with the trace in their headers, and the callback for the end of the send."""

    def wrapped(self, call: Callable[..., Any], is_async: bool) -> Callable[..., Any]:
        """Wrap the call of a handler in a span."""
