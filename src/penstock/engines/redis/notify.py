"""Wake-ups: noticing commits of other processes by a channel, on a connection of its own.

A notification is a hint, never needed for correctness: waiting clients poll as well. A process publishes at most once
in a few milliseconds; one that receives a notification looks again a little later, for calls that published nothing.
"""

from __future__ import annotations

import contextlib
import threading
import time

import redis

from penstock.domain.errors import PenstockError
from penstock.engines.commit_watch import CommitWatch
from penstock.engines.redis.connection import LIBRARY_ERRORS, RedisDatabase

QUIET_SECONDS = 0.005
SECOND_LOOK_SECONDS = 0.012
ROUND_SECONDS = 1.0
POLL_SECONDS = 0.1


class ChannelWatch(CommitWatch):
    idle_rounds = 30
    failures = (PenstockError, *LIBRARY_ERRORS, OSError, ValueError)

    def __init__(self, database: RedisDatabase) -> None:
        super().__init__()
        self._database = database
        self._published = 0.0
        self._subscription: redis.client.PubSub | None = None
        self._is_listening = False

    def is_due(self) -> bool:
        """Whether a call should notify: not when one did a moment ago."""
        now = time.monotonic()
        if now - self._published < QUIET_SECONDS:
            return False
        self._published = now
        return True

    def _is_wanted(self) -> bool:
        return True

    def _patience(self) -> float:
        return threading.TIMEOUT_MAX if self._is_listening else POLL_SECONDS

    def _interrupt(self) -> None:
        """Wake the thread by a notification; without a server it sees that it is over within a round."""
        with contextlib.suppress(PenstockError):
            self._database.command("PUBLISH", self._database.channel, "")

    def _look(self) -> None:
        subscription = self._database.nodes.pubsub()
        self._subscription = subscription
        try:
            subscription.subscribe(self._database.channel)
            subscription.get_message(timeout=ROUND_SECONDS)
            self._is_listening = True
            # Others may have committed between the caller's last look and this moment.
            self.committed()
            self._pass_on(subscription)
        finally:
            self._is_listening = False
            self._subscription = None
            subscription.close()

    def _pass_on(self, subscription: redis.client.PubSub) -> None:
        idle = 0
        look_at: float | None = None
        while not self._is_over(idle):
            timeout = ROUND_SECONDS if look_at is None else max(0.0, look_at - time.monotonic())
            heard = subscription.get_message(timeout=timeout) is not None
            if heard or look_at is not None:
                self.committed()
            look_at = time.monotonic() + SECOND_LOOK_SECONDS if heard else None
            idle = 0 if self._waiting or heard else idle + 1
