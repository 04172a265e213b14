"""Wake-ups by commits while the worker is idle."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.client.executor import BACKSTOP_SECONDS
from penstock.domain.errors import StoreError
from penstock.engines.contract import Engine
from penstock.workers.backoff import FIRST_SECONDS


class CommitListener:
    """A thread that blocks in `engine.wait` while the queues are empty, and wakes the fetcher."""

    def __init__(self, engine: Engine, on_commit: Callable[[], None]) -> None:
        self._engine = engine
        self._on_commit = on_commit
        self._asked = threading.Condition()
        self._seen: int | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="penstock-listener", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def listen(self, seen: int) -> None:
        """Call `on_commit` after the next commit behind this mark."""
        with self._asked:
            self._seen = seen
            self._asked.notify()

    def stop(self) -> None:
        """Returns at once; the thread may block in the engine a little longer."""
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
                # The fetcher gets the same error and logs it; here a pause only prevents a busy loop.
                threading.Event().wait(FIRST_SECONDS)
            self._on_commit()
