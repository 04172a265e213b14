"""Listening: the application on a socket, by uvicorn, with the bounds that strangers need."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock.servers.http.application import Application
from penstock.settings import HttpSettings

# What is under way at the end gets this long to finish.
GRACE_SECONDS = 10
BACKLOG = 1024


class Listener:
    """One port. `port` is where it listens: 0 in the settings asks for any that is free."""

    def __init__(self, application: Application, settings: HttpSettings, tls: ssl.SSLContext | None) -> None:
        self._application = application
        self._settings = settings
        self._tls = tls
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self.port = settings.port

    async def begin(self) -> None:
        """Raises OSError when the port cannot be had."""
        listening = _bound(self._settings.host, self._settings.port)
        self.port = listening.getsockname()[1]
        self._server = _Server(self._config())
        self._serving = asyncio.create_task(self._server.serve(sockets=[listening]))
        while not self._server.started and not self._serving.done():
            await asyncio.sleep(0)
        if self._serving.done():
            await self._serving

    def _config(self) -> uvicorn.Config:
        settings, tls = self._settings, self._tls
        limits = _Limits(settings)
        return uvicorn.Config(
            self._application,
            http=type("Protocol", (_Protocol,), {"limits": limits}),
            ws="none",
            loop="none",
            lifespan="off",
            log_config=None,
            # Paths and queries name what people do: they stay out of the log.
            access_log=False,
            # Who asks is told by the connection, never by a header that anybody can write.
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=max(1, round(settings.idle_seconds)),
            timeout_graceful_shutdown=GRACE_SECONDS,
            ssl_context_factory=None if tls is None else (lambda config, default: tls),
        )

    async def end(self) -> None:
        """Take no new clients, finish what was begun, then hang up."""
        self._application.site.is_closing.set()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
        await self._application.close()


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


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are for the whole program, which has other doors."""
        yield


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

    limits: _Limits

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
