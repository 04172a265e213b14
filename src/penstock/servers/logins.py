"""Logins: rate limits, and the password checks in progress.

Checking a password is slow on purpose, which invites floods of attempts. Each address may have a few attempts per
second, including those in progress; further ones are refused before anything is computed. Checks run on few threads,
and addresses take turns: a valid login waits for one check of another address, not for all of them.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from penstock.domain.errors import PenstockError
from penstock.servers.access import User, Users
from penstock.servers.login_rate_limit import LoginRateLimit
from penstock.servers.passwords import quick_digest

# A check occupies a core and 128 MiB; half of the cores stay free for clients.
MAX_AT_ONCE = max(1, min(2, (os.cpu_count() or 1) // 2))
# Attempts of all addresses, including those that wait for their turn.
MAX_UNDER_WAY = 32
_threads = ThreadPoolExecutor(MAX_AT_ONCE, thread_name_prefix="penstock-password")


class TooManyLogins(PenstockError):
    """Refused without a check: too many attempts of this address have failed, or too many are in progress."""


class _Attempt(NamedTuple):
    name: str
    password: bytes
    outcome: asyncio.Future[bool]


class Logins:
    """The logins of one event loop."""

    def __init__(self, users: Users, failures_per_second: int) -> None:
        self._users = users
        self._rate_limit = LoginRateLimit(failures_per_second)
        self._lines: dict[str, deque[_Attempt]] = {}  # waiting attempts, by address
        self._turns: deque[str] = deque()  # addresses with waiting attempts and no check under way
        self._same: dict[tuple[str, bytes], asyncio.Future[bool]] = {}
        self._under_way: Counter[str] = Counter()  # by address, waiting ones included
        self._running = 0

    def by_token(self, address: str, token: str) -> User | None:
        """A token cannot be guessed, so a valid one is accepted whatever the rate limit."""
        user = self._users.find_by_token(token)
        if user is None:
            self._check(address)
            self._rate_limit.note_failure(address)
        return user

    async def by_password(self, address: str, name: str, password: bytes) -> User | None:
        """The user with this password or token. A cached password is accepted whatever the rate limit: others who guess
        from the same address must not lock the user out."""
        users = self._users
        if not users.has_token(name, password) and not users.remembers(name, password):
            self._check(address)
            is_right = (
                users.check(name, password) if users.is_quick(name) else await self._wait(address, name, password)
            )
            if not is_right:
                self._rate_limit.note_failure(address)
                return None
        return users.find(name)

    def _check(self, address: str) -> None:
        if not self._rate_limit.allows(address, self._under_way[address]):
            raise TooManyLogins("too many failed attempts to authenticate from this address: try again in a second")

    async def _wait(self, address: str, name: str, password: bytes) -> bool:
        """Concurrent attempts with the same password, as by the connections of one program, share one check."""
        key = (name, quick_digest(password))
        outcome = self._same.get(key)
        if outcome is None:
            if self._under_way.total() >= MAX_UNDER_WAY:
                raise TooManyLogins("too many attempts to authenticate at the moment: try again in a second")
            outcome = self._same[key] = asyncio.get_running_loop().create_future()
            outcome.add_done_callback(lambda _: self._same.pop(key))
            self._under_way[address] += 1
            if address not in self._lines:
                self._lines[address] = deque()
                self._turns.append(address)
            self._lines[address].append(_Attempt(name, password, outcome))
            self._begin()
        # Shielded, because one of several waiters may be cancelled.
        return await asyncio.shield(outcome)

    def _begin(self) -> None:
        while self._turns and self._running < MAX_AT_ONCE:
            address = self._turns.popleft()
            attempt = self._lines[address].popleft()
            self._running += 1
            check = partial(self._users.check, attempt.name, attempt.password)
            checking = asyncio.get_running_loop().run_in_executor(_threads, check)
            checking.add_done_callback(partial(self._end, address, attempt))

    def _end(self, address: str, attempt: _Attempt, checked: asyncio.Future[bool]) -> None:
        self._running -= 1
        self._under_way[address] -= 1
        if self._lines[address]:
            self._turns.append(address)  # behind all others
        else:
            del self._lines[address], self._under_way[address]
        if not attempt.outcome.done():
            attempt.outcome.set_result(not checked.cancelled() and checked.result())
        self._begin()
