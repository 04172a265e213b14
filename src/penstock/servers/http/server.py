"""Serve the application with uvicorn, with limits for untrusted clients."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from email.utils import formatdate

import uvicorn
from uvicorn.server import ServerState

from penstock.servers.http.app import Application
from penstock.servers.http.connection import ConnectionLimits, HttpConnection
from penstock.settings import HttpSettings

# How long requests in progress may take to finish after the listener was stopped.
GRACE_SECONDS = 10.0
BACKLOG = 1024


class HttpListener:
    """One listening socket. `port` is its port: 0 in the settings takes any free one.

    uvicorn's protocol runs without `uvicorn.Server`, which installs signal handlers and wakes up ten times a second.
    """

    def __init__(self, application: Application, settings: HttpSettings, tls: ssl.SSLContext | None) -> None:
        self._application = application
        self._settings = settings
        self._config = _config(application, settings, tls)
        self._state = ServerState()
        self.limits = ConnectionLimits(settings)
        self._listening: asyncio.Server | None = None
        self._clock: asyncio.Task[None] | None = None
        self.port = settings.port

    async def start(self) -> None:
        """Raises OSError when the port is not available."""
        loop = asyncio.get_running_loop()
        listening = _bound(self._settings.host, self._settings.port)
        self.port = listening.getsockname()[1]
        self._clock = loop.create_task(self._update_date())
        self._listening = await loop.create_server(
            lambda: HttpConnection(self._config, self._state, self.limits, loop),
            sock=listening,
            ssl=self._config.ssl,
            backlog=BACKLOG,
        )

    async def _update_date(self) -> None:
        while True:
            self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            await asyncio.sleep(1)

    async def stop(self) -> None:
        """Accept no more connections, let requests in progress finish, then close all connections."""
        self._application.state.is_closing.set()
        if self._listening is not None:
            self._listening.close()
        if self._clock is not None:
            self._clock.cancel()
        for connection in list(self._state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                while self._state.tasks:
                    await asyncio.wait(self._state.tasks)
        for connection in list(self._state.connections):
            connection.transport.abort()
        for task in self._state.tasks:
            task.cancel()
        await self._application.close()


def _config(application: Application, settings: HttpSettings, tls: ssl.SSLContext | None) -> uvicorn.Config:
    config = uvicorn.Config(
        application,
        http=HttpConnection,
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        # Paths and queries hold names of queues and messages: they stay out of the log.
        access_log=False,
        # The client's address is that of the connection, never that of a header which anybody can set.
        proxy_headers=False,
        timeout_keep_alive=max(1, round(settings.idle_seconds)),
        ssl_context_factory=None if tls is None else (lambda config, default: tls),
    )
    config.load()
    return config


def _bound(host: str, port: int) -> socket.socket:
    ((family, kind, protocol, _, address), *_) = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        # Listen before the port is published, so that nobody is refused.
        bound.listen(BACKLOG)
        bound.setblocking(False)
    except BaseException:
        bound.close()
        raise
    return bound
