"""What a store and its workers tell, if somebody traces them. The client knows no tracing library; this is its side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from penstock.domain.message import Draft

# Called when the send has ended: with its ids, or with the error.
Finish = Callable[[list[str] | None, BaseException | None], None]


class Tracing(Protocol):
    def sending(self, queue: str, drafts: list[Draft]) -> tuple[list[Draft], Finish]:
        """The messages with the trace in their headers, and what to call at the end."""

    def wrapped(self, call: Callable[..., Any], is_async: bool) -> Callable[..., Any]:
        """The call of a handler, with whatever belongs around it."""
