"""The store as Spark's processes have it: opened where it is used, and kept while the process lives."""

from __future__ import annotations

import atexit
import os
from contextlib import suppress

from penstock.client.connecting import open_engine
from penstock.domain.errors import PenstockError
from penstock.engines.contract import Engine

_engines: dict[tuple[int, str], Engine] = {}


def engine_at(url: str) -> Engine:
    """Workers of Spark are used again: opening a store once per process saves it for every later task."""
    place = (os.getpid(), url)
    if place not in _engines:
        _engines[place] = open_engine(url)
    return _engines[place]


@atexit.register
def _close() -> None:
    """Drivers of databases that are still open when Python has gone half away complain about it."""
    for (process, _), engine in _engines.items():
        if process == os.getpid():
            with suppress(PenstockError):
                engine.close()
