"""When to check the timeouts of each client: at the earliest time at which one can have expired.

Checking all clients every second would be most of the work of an idle server.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.servers.resp.connection import Connection


class Timeouts:
    def __init__(self) -> None:
        self._seconds: dict[Connection, int] = {}
        self._turns: dict[int, set[Connection]] = {}

    def schedule(self, connection: Connection, at: float) -> None:
        """Schedule the check in the second of `at`, instead of an earlier schedule."""
        self.forget(connection)
        if at < math.inf:
            second = self._seconds[connection] = int(at)
            self._turns.setdefault(second, set()).add(connection)

    def forget(self, connection: Connection) -> None:
        second = self._seconds.pop(connection, None)
        if second is not None:
            self._turns[second].discard(connection)

    def due(self, now: float) -> list[Connection]:
        """The clients to check now. Each must be scheduled again."""
        seconds = [second for second in self._turns if second <= now]
        due = [connection for second in seconds for connection in self._turns.pop(second)]
        for connection in due:
            del self._seconds[connection]
        return due
