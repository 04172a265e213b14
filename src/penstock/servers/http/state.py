"""State shared by all requests: the store, the users, the settings and the sessions."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request

from penstock.client.aio.connection import connect_async
from penstock.client.aio.store import AsyncStore
from penstock.servers.access import User, Users
from penstock.servers.http.request_metrics import RequestMetrics
from penstock.servers.http.router import path_to
from penstock.servers.http.sampler import Sampler
from penstock.servers.http.sessions import Sessions
from penstock.servers.logins import Logins
from penstock.servers.shared_receive import SharedReceives
from penstock.settings import HttpSettings

# Authentication by the outer application; None is an unauthenticated client.
Identify = Callable[[Request], Awaitable[User | None]]
SCOPE_KEY = "penstock.state"


class HttpState:
    """A store given by URL is opened by the first request: a mounted application gets no lifespan events."""

    store: AsyncStore
    sampler: Sampler
    receives: SharedReceives

    def __init__(
        self, store: AsyncStore | str, users: Users, settings: HttpSettings, identify: Identify | None = None
    ) -> None:
        self.users = users
        self.settings = settings
        self.identify = identify
        self.sessions = Sessions(users, settings.session_seconds)
        self.logins = Logins(users, settings.failed_logins_per_second)
        self.open_csrf = secrets.token_urlsafe(32)  # for forms of clients that need no login
        self.hosts = frozenset(name.strip().lower() for name in (settings.hosts or "").split(",") if name.strip())
        self.request_metrics = RequestMetrics()
        self.queues_seen: dict[str, float] = {}  # when a queue was last seen to exist
        self.is_closing = asyncio.Event()
        self.history: Any = None  # the dashboard's
        self.on_open: list[Callable[[HttpState], None]] = []
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
                self.receives = SharedReceives(self.store.executor)
                for begin in self.on_open:
                    begin(self)
                self.is_open = True

    async def close(self) -> None:
        """Answer waiting requests, and close the store if it was opened here."""
        self.is_closing.set()
        if not self.is_open:
            return
        self.is_open = False
        if hasattr(self.history, "close"):
            await self.history.close()
        if self._url is not None:
            await self.store.close()

    def link(self, request: Request, *segments: str) -> str:
        """A path within the application, for a page."""
        return path_to(request.scope, *segments)


def http_state(request: Request) -> HttpState:
    state: HttpState = request.scope[SCOPE_KEY]
    return state
