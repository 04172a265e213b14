"""Senders under faults, and what must have become of their messages."""

from __future__ import annotations

import threading
from collections import Counter

import penstock

UNKNOWN = "a send may have been committed"


class Load:
    """Senders, one for each URL, until they are stopped: what was acknowledged, and how the others failed."""

    def __init__(self, name: str, urls: list[str]) -> None:
        self.name = name
        self.acknowledged: list[bytes] = []
        self.refusals: list[str] = []
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(url, place)) for place, url in enumerate(urls)]
        for thread in self._threads:
            thread.start()

    def _send(self, url: str, place: int) -> None:
        number = 0
        with penstock.connect(url, busy_seconds=60) as store:
            while not self._stopped.is_set():
                number += 1
                payload = f"{place}:{number}".encode()
                try:
                    store.queue(self.name).send(payload)
                except penstock.StoreUnavailable as error:
                    self.refusals.append(str(error))
                    self._stopped.wait(0.05)
                else:
                    self.acknowledged.append(payload)

    def await_more(self, count: int) -> None:
        """Until that many more sends were acknowledged."""
        goal = len(self.acknowledged) + count
        pause = threading.Event()
        for _ in range(12_000):
            if len(self.acknowledged) >= goal:
                return
            pause.wait(0.01)
        raise AssertionError(f"no more sends: {self.refusals[-3:]}")

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive()

    def check(self, url: str) -> None:
        """Everything acknowledged is in the log once. A send whose outcome is not known may be there, once."""
        with penstock.connect(url) as store:
            found = Counter(message.payload for message in store.engine.browse(self.name, 0, None, 10**6))
        assert set(self.acknowledged) <= set(found)
        assert set(found.values()) == {1}
        assert len(found) <= len(self.acknowledged) + sum(UNKNOWN in refusal for refusal in self.refusals)
