"""What all requests share: the store, the users, the settings, and who is logged in."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request

from penstock.client.aio.connecting import connect_async
from penstock.client.aio.store import AsyncStore
from penstock.servers.access import User, Users
from penstock.servers.http.answers import Answers
from penstock.servers.http.routing import path_to
from penstock.servers.http.sampling import Sampler
from penstock.servers.http.sessions import Sessions
from penstock.servers.logins import Logins
from penstock.settings import HttpSettings

# The application that this one is mounted into may say who asks; None is nobody.
Identify = Callable[[Request], Awaitable[User | None]]
SCOPE_KEY = "penstock.site"


class Site:
    """A store that is given by its URL is opened when the first request comes: an application that is mounted into
    another one is not told when that starts."""

    store: AsyncStore
    sampler: Sampler

    def __init__(
        self, store: AsyncStore | str, users: Users, settings: HttpSettings, identify: Identify | None = None
    ) -> None:
        self.users = users
        self.settings = settings
        self.identify = identify
        self.sessions = Sessions(users, settings.session_seconds)
        self.logins = Logins(users, settings.failed_logins_per_second)
        self.open_csrf = secrets.token_urlsafe(32)  # for forms of those who need no login
        self.hosts = frozenset(name.strip().lower() for name in (settings.hosts or "").split(",") if name.strip())
        self.answers = Answers()
        self.queue_names: set[str] = set()  # those known to exist: a queue is never removed
        self.is_closing = asyncio.Event()
        self.history: Any = None  # the dashboard's
        self.on_open: list[Callable[[Site], None]] = []
        self._url = store if isinstance(store, str) else None
        self._given = None if isinstance(store, str) else store
        self._opening: asyncio.Lock | None = None
        self.is_open = False

    async def open(self) -> None:
        if self.is_open:
            return
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if not self.is_open:
                self.store = self._given if self._url is None else await connect_async(self._url)  # type: ignore[assignment]  # one of them is there
                self.sampler = Sampler(self.store)
                for begin in self.on_open:
                    begin(self)
                self.is_open = True

    async def close(self) -> None:
        """Those who wait are answered; a store that was opened here is closed."""
        self.is_closing.set()
        if not self.is_open:
            return
        self.is_open = False
        if hasattr(self.history, "close"):
            await self.history.close()
        if self._url is not None:
            await self.store.close()

    def link(self, request: Request, *segments: str) -> str:
        """A path within this site, for a page."""
        return path_to(request.scope, *segments)


def site_of(request: Request) -> Site:
    site: Site = request.scope[SCOPE_KEY]
    return site
