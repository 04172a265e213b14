"""Hearing of commits while there is nothing to do."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.client.calling import BACKSTOP_SECONDS
from penstock.domain.errors import StoreError
from penstock.engines.contract import Engine
from penstock.workers.patience import FIRST_SECONDS


class Listener:
    """A thread that sleeps in `engine.wait` while the fetcher has room and found nothing, and wakes it."""

    def __init__(self, engine: Engine, heard: Callable[[], None]) -> None:
        self._engine = engine
        self._heard = heard
        self._asked = threading.Condition()
        self._seen: int | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="penstock-listener", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def listen(self, seen: int) -> None:
        """Say when something is committed after this mark."""
        with self._asked:
            self._seen = seen
            self._asked.notify()

    def stop(self) -> None:
        """Without waiting: it may sleep in the engine for a moment longer."""
        with self._asked:
            self._stopped = True
            self._asked.notify()

    def _run(self) -> None:
        while True:
            with self._asked:
                while self._seen is None and not self._stopped:
                    self._asked.wait()
                if self._stopped:
                    return
                seen, self._seen = self._seen, None
            try:
                assert seen is not None
                self._engine.wait(seen, BACKSTOP_SECONDS)
            except StoreError:
                # The fetcher will meet the same error and log it; here it must only not turn into a spin.
                threading.Event().wait(FIRST_SECONDS)
            self._heard()
