"""Fixtures for pytest, registered by the entry point `pytest11`. Penstock itself is imported when one is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.client.store import Store
    from penstock.testing.clock import Clock
    from penstock.testing.runner import Handled


@pytest.fixture
def penstock_clock() -> Clock:
    """The clock of `penstock_store`, which stands still: `penstock_clock.advance(hours=1)` moves it."""
    from penstock.testing.clock import Clock

    return Clock()


@pytest.fixture
def penstock_store(penstock_clock: Clock) -> Iterator[Store]:
    """An empty store in memory, on `penstock_clock`."""
    from penstock.testing.runner import memory_store

    with memory_store(penstock_clock) as store:
        yield store


@pytest.fixture
def penstock_run(penstock_store: Store) -> Callable[..., list[Handled]]:
    """`penstock_run(app)` runs everything that is due in `penstock_store`, and returns the outcome of each message."""
    from penstock.testing.runner import run_due

    def run(handlers: Any, **options: Any) -> list[Handled]:
        return run_due(penstock_store, handlers, **options)

    return run
