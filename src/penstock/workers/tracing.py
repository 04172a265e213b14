"""Switches tracing on. The implementation is in `spans`, which is loaded on use."""

from __future__ import annotations

from typing import Any

from penstock.client.aio.store import AsyncStore
from penstock.client.store import Store
from penstock.domain.errors import InvalidInput, MissingExtra
from penstock.domain.validation import shown


def trace(store: Store | AsyncStore, *, provider: Any = None, parents: bool = True) -> None:
    """Make OpenTelemetry spans for what this store sends, and for what a worker on it does.

    Messages carry the trace in their headers. The span of a handler is a child of the span that sent its message, and
    linked to it; with `parents=False` it is only linked. Uses the program's tracer provider unless given one.
    """
    if not isinstance(store, Store | AsyncStore):
        raise InvalidInput(f"trace needs a store from penstock.connect(url), not {shown(store)}")
    try:
        from penstock.workers.spans import SpanTracing
    except ImportError:
        raise MissingExtra("tracing needs opentelemetry-api: pip install 'penstock-queue[tracing]'") from None
    store.executor.tracing = SpanTracing(provider, parents)
