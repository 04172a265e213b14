"""Listening: the application on a socket, by uvicorn, with the bounds that strangers need."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import Counter
from email.utils import formatdate
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from penstock.servers.http.asgi import Application
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
        self._limits = _Limits(settings)
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
            lambda: _Protocol(self._config, self._state, self._limits, loop),
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
        http=_Protocol,
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


class _Limits:
    """How many clients there are, over all and by address."""

    def __init__(self, settings: HttpSettings) -> None:
        self.settings = settings
        self.clients = 0
        self.by_address: Counter[str] = Counter()

    def admit(self, address: str) -> bool:
        self.clients += 1
        self.by_address[address] += 1
        most, most_here = self.settings.clients, self.settings.clients_per_address
        return not (most and self.clients > most) and not (most_here and self.by_address[address] > most_here)

    def dismiss(self, address: str) -> None:
        self.clients -= 1
        self.by_address[address] -= 1
        if not self.by_address[address]:
            del self.by_address[address]


class _Protocol(HttpToolsProtocol):
    """uvicorn's, for clients that are not trusted: their number, the size of headers and the time that these take are
    bounded."""

    def __init__(
        self, config: uvicorn.Config, state: ServerState, limits: _Limits, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(config, state, {}, loop)
        self.limits = limits

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._address = "local" if self.client is None else self.client[0]
        self._header_bytes = 0
        self._in_headers = True
        self._deadline: asyncio.TimerHandle | None = None
        if not self.limits.admit(self._address):
            self._refuse(b"503 Service Unavailable", b"too many clients")
            return
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self.limits.dismiss(self._address)
        self._stop_clock()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_headers:
            if self._deadline is None:
                self._expect_headers()
            self._header_bytes += len(data)
        super().data_received(data)
        # What follows the headers in the same packet is not theirs, and they are whole then.
        if self._in_headers and self._header_bytes > self.limits.settings.header_bytes:
            self._refuse(b"431 Request Header Fields Too Large", b"the headers have too many bytes")

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._header_bytes = 0
        self._stop_clock()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_headers = True
        super().on_message_complete()

    def _expect_headers(self) -> None:
        seconds = self.limits.settings.request_seconds
        if seconds:
            self._deadline = self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        self._refuse(b"408 Request Timeout", b"the request took too long to come")

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, status: bytes, why: bytes) -> None:
        self._stop_clock()
        if not self.transport.is_closing():
            head = b"HTTP/1.1 %b\r\ncontent-type: text/plain; charset=utf-8\r\n" % status
            self.transport.write(head + b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(why), why))
            self.transport.close()
