"""Listening: the application on a socket, by uvicorn, with the bounds that strangers need."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from email.utils import formatdate

import uvicorn
from uvicorn.server import ServerState

from penstock.servers.http.asgi import Application
from penstock.servers.http.connections import Clients, Connection
from penstock.settings import HttpSettings

# What is under way at the end gets this long to finish.
GRACE_SECONDS = 10.0
BACKLOG = 1024


class Listener:
    """One port. `port` is where it listens: 0 in the settings asks for any that is free.

    uvicorn's protocol is used without its server, which owns the whole process: its signals, its loop, and a look at
    the clock ten times a second.
    """

    def __init__(self, application: Application, settings: HttpSettings, tls: ssl.SSLContext | None) -> None:
        self._application = application
        self._settings = settings
        self._config = _config(application, settings, tls)
        self._state = ServerState()
        self.clients = Clients(settings)
        self._listening: asyncio.Server | None = None
        self._dating: asyncio.Task[None] | None = None
        self.port = settings.port

    async def begin(self) -> None:
        """Raises OSError when the port cannot be had."""
        loop = asyncio.get_running_loop()
        listening = _bound(self._settings.host, self._settings.port)
        self.port = listening.getsockname()[1]
        self._dating = loop.create_task(self._tell_the_date())
        self._listening = await loop.create_server(
            lambda: Connection(self._config, self._state, self.clients, loop),
            sock=listening,
            ssl=self._config.ssl,
            backlog=BACKLOG,
        )

    async def _tell_the_date(self) -> None:
        while True:
            self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            await asyncio.sleep(1)

    async def end(self) -> None:
        """Take no new clients, finish what was begun, then hang up."""
        self._application.site.is_closing.set()
        if self._listening is not None:
            self._listening.close()
        if self._dating is not None:
            self._dating.cancel()
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
        http=Connection,
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        # Paths and queries name what people do: they stay out of the log.
        access_log=False,
        # Who asks is told by the connection, never by a header that anybody can write.
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
        # At once: whoever is told the port may connect.
        bound.listen(BACKLOG)
        bound.setblocking(False)
    except BaseException:
        bound.close()
        raise
    return bound
