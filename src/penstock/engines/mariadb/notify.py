"""Notice commits of other processes, by polling the counters of queues.

One thread per store polls, and only while a call waits. MariaDB has nothing like LISTEN, and a row that every commit
changed would make all writers wait for each other."""

from __future__ import annotations

import threading
import time
from collections import deque

import pymysql

from penstock.domain.errors import PenstockError
from penstock.engines.commit_watch import CommitWatch
from penstock.engines.mariadb.connection import MariadbDatabase, MariadbWrite
from penstock.engines.mariadb.link import PooledLink
from penstock.engines.mariadb.pool import abandon
from penstock.engines.mariadb.transaction import SQL

# The poll interval under load, and of an idle store.
POLL_SECONDS = 0.01
IDLE_POLL_SECONDS = 0.03
# The store counts as idle after this many polls without a commit.
IDLE_POLLS = 30
# A poll may take this part of the time, so that many queues do not keep a core busy. The quickest of the latest polls
# counts: the others were slow because the machine is busy.
LARGEST_SHARE = 0.02
LATEST = 10
# The interval while the server cannot be reached.
RETRY_SECONDS = 1.0


class CounterWatch(CommitWatch):
    idle_rounds = 100

    def __init__(self, database: MariadbDatabase) -> None:
        super().__init__()
        self._database = database
        self._link: PooledLink | None = None

    def silent_write(self) -> MariadbWrite:
        return self._database.silent_write()

    def _is_wanted(self) -> bool:
        return True

    def _patience(self) -> float:
        return threading.TIMEOUT_MAX

    def _interrupt(self) -> None:
        """The thread never sleeps for long."""

    def _look(self) -> None:
        try:
            self._poll()
        finally:
            self._leave()

    def _poll(self) -> None:
        counted: int | None = None
        quiet = idle = 0
        took: deque[float] = deque(maxlen=LATEST)
        while not self._is_over(idle):
            begun = time.perf_counter()
            latest = self._commits_so_far()
            took.append(time.perf_counter() - begun)
            # Also after the first poll: another process may have committed since the caller's last read.
            if latest != counted:
                counted, quiet = latest, 0
                self.committed()
            else:
                quiet += 1
            idle = 0 if self._waiting else idle + 1
            usual = RETRY_SECONDS if latest is None else POLL_SECONDS if quiet < IDLE_POLLS else IDLE_POLL_SECONDS
            time.sleep(max(usual, min(min(took) / LARGEST_SHARE, RETRY_SECONDS)))

    def _commits_so_far(self) -> int | None:
        """The counters, read on a connection of its own; None while the server cannot be reached."""
        try:
            if self._link is None:
                self._link = self._database.pool.open()
                if self._database.is_cluster:
                    self._link.execute([SQL.read_applied])
            count, has_arrivals = self._read_counters(self._link)
            if has_arrivals:
                self._database.place_arrivals(self._link)
                count, _ = self._read_counters(self._link)
        except (PenstockError, pymysql.MySQLError, OSError):
            self._leave()
            return None
        return count

    def _read_counters(self, link: PooledLink) -> tuple[int, int]:
        [(rows, _)] = link.execute([SQL.commits])
        assert rows is not None
        return rows[0][0], rows[0][1]

    def _leave(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            abandon(link.connection)
