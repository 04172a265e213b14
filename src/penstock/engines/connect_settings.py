"""Settings of a store besides its URL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from psycopg_pool import ConnectionPool


class ConnectSettings(TypedDict, total=False):
    """Keyword arguments of `connect`. SQLite takes `busy_seconds`, `clock` and `random`; the last two are for tests:
    microseconds since 1970, and a number from 0 to 1."""

    busy_seconds: float
    pool_size: int
    prepare: bool
    listen: bool
    pool: ConnectionPool[Any] | None
    clock: Callable[[], int]
    random: Callable[[], float]
