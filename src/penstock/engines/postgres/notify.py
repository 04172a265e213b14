"""LISTEN: noticing commits of other processes, on a connection of its own.

A notification is a hint, never needed for correctness: waiting clients poll as well. Commits with a notification are
serialised across the cluster, so a process sends at most one in a few milliseconds; a client that receives one polls
again a little later, for messages that were sent meanwhile without one.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time

import psycopg

from penstock.domain.errors import PenstockError, StoreUnavailable
from penstock.engines.commit_watch import CommitWatch
from penstock.engines.postgres.connection import SQL, Database
from penstock.engines.postgres.prepared_statements import is_pooled

# At most one notification per queue and process in this time; a listener polls again after it.
QUIET_SECONDS = 0.005
SECOND_LOOK_SECONDS = 0.012
# The polling interval without LISTEN (behind a pooler in transaction mode).
POLL_SECONDS = 0.1
# How long a notification to itself may take through a pooler in session mode.
ECHO_SECONDS = 2.0
# Attempts to take the lock of listeners, which a sender may hold for a moment, and the pause between them.
TRIES = 20
TRY_SECONDS = 0.002
# How long the listener waits before it checks whether it is still needed.
ROUND_SECONDS = 1.0


class Listener(CommitWatch):
    idle_rounds = 30
    failures = (PenstockError, psycopg.Error, OSError)

    def __init__(self, database: Database, listen: bool) -> None:
        super().__init__()
        self._database = database
        self._listen = listen
        self._notified: dict[str, float] = {}
        self._connection: psycopg.Connection | None = None
        self._is_listening = False

    def is_due(self, queue: str) -> bool:
        """Whether a send should notify: not within QUIET_SECONDS of the last notification."""
        now = time.monotonic()
        if now - self._notified.get(queue, 0.0) < QUIET_SECONDS:
            return False
        if len(self._notified) > 10_000:
            self._notified.clear()
        self._notified[queue] = now
        return True

    def _is_wanted(self) -> bool:
        return self._listen

    def _patience(self) -> float:
        return threading.TIMEOUT_MAX if self._is_listening else POLL_SECONDS

    def _interrupt(self) -> None:
        """Wake the listener by shutting its socket down."""
        connection = self._connection
        if connection is not None:
            try:
                duplicate = socket.socket(fileno=os.dup(connection.pgconn.socket))
                duplicate.shutdown(socket.SHUT_RDWR)
                duplicate.close()
            except (OSError, psycopg.Error):
                pass  # it is closed already

    def _look(self) -> None:
        connection = self._database.connect()
        self._connection = connection
        try:
            if is_pooled(connection) and not self._hears_itself(connection):
                self._listen = False
                return
            connection.execute(SQL.listen)
            self._say_listening(connection)
            self._is_listening = True
            # Others may have committed between the caller's last poll and this moment.
            self.committed()
            self._pass_on(connection)
        finally:
            self._is_listening = False
            self._connection = None
            connection.close()

    def _hears_itself(self, connection: psycopg.Connection) -> bool:
        """Whether a notification gets through a pooler: not in transaction mode, where the session changes with each
        transaction and must be left without a LISTEN."""
        word = secrets.token_hex(8)
        connection.execute(SQL.listen_for_echo)
        self._database.rows(SQL.echo, (word,))
        heard = any(each.payload == word for each in connection.notifies(timeout=ECHO_SECONDS, stop_after=1))
        connection.execute(SQL.stop_listening)
        return heard

    def _say_listening(self, connection: psycopg.Connection) -> None:
        for _ in range(TRIES):
            if connection.execute(SQL.say_listening).fetchone() == (True,):
                return
            time.sleep(TRY_SECONDS)
        raise StoreUnavailable(f"{self._database.name}: somebody else holds the lock of listeners")

    def _pass_on(self, connection: psycopg.Connection) -> None:
        """Wake waiting clients at every notification, and once more a little after the last one."""
        idle = 0
        look_at: float | None = None
        while not self._is_over(idle):
            timeout = ROUND_SECONDS if look_at is None else max(0.0, look_at - time.monotonic())
            heard = list(connection.notifies(timeout=timeout, stop_after=1))
            if heard or look_at is not None:
                self.committed()
            look_at = time.monotonic() + SECOND_LOOK_SECONDS if heard else None
            idle = 0 if self._waiting or heard else idle + 1
