"""Engines of Spark's processes: opened on first use and kept for the lifetime of the process."""

from __future__ import annotations

import atexit
import os
from contextlib import suppress

from penstock.client.connection import open_engine
from penstock.domain.errors import InvalidUrl, PenstockError
from penstock.engines.contract import Engine, Facet

NEEDED: frozenset[Facet] = frozenset({"windows", "sink", "ledger"})
_engines: dict[tuple[int, str], Engine] = {}


def engine_at(url: str) -> Engine:
    """Spark reuses Python workers, so later tasks find the engine open."""
    place = (os.getpid(), url)
    if place not in _engines:
        _engines[place] = _checked(open_engine(url))
    return _engines[place]


def _checked(engine: Engine) -> Engine:
    missing = NEEDED - engine.capabilities.facets
    if missing:
        engine.close()
        raise InvalidUrl(f"Spark needs {', '.join(sorted(missing))}, which a store on {engine.name} does not have")
    return engine


@atexit.register
def _close() -> None:
    """Close before the interpreter shuts down: database drivers warn about open connections."""
    for (process, _), engine in _engines.items():
        if process == os.getpid():
            with suppress(PenstockError):
                engine.close()
