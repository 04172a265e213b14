"""One client connection: uvicorn's HTTP protocol, with limits for untrusted clients.

Connections are limited in total, per address and per user, and the size of request headers is limited. A client that
stalls, whether in a request it began or in reading its response, is disconnected.

This module and `server` are all that touches uvicorn below ASGI: its protocol class, whose parser callbacks are those
of httptools, and the state that it shares with the server. `tests/servers/http/test_uvicorn.py` checks both.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from http import HTTPStatus
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from penstock.domain.validation import shown
from penstock.servers.http.problems import CONTENT_TYPE, Problem
from penstock.servers.http.request import CONNECTION
from penstock.servers.http.security import HEADERS, NO_STORE, TRANSPORT_SECURITY
from penstock.settings import HttpSettings

# A body must bring this many bytes, or its end, within `request_seconds`.
PART_BYTES = 64 << 10


class ConnectionLimits:
    """Counts connections in total, per address and per user, and refuses those beyond the settings."""

    def __init__(self, settings: HttpSettings) -> None:
        self.settings = settings
        self.count = 0
        self.by_address: Counter[str] = Counter()
        self.by_user: Counter[str] = Counter()

    def admit(self, address: str) -> str | None:
        """Count a connection and return why it is refused, or None. A refused one must be dismissed, too."""
        self.count += 1
        self.by_address[address] += 1
        most, most_here = self.settings.clients, self.settings.clients_per_address
        if most and self.count > most:
            return f"there are {most} clients already (the setting http.clients)"
        if most_here and self.by_address[address] > most_here:
            return f"{most_here} clients come from this address already (the setting http.clients_per_address)"
        return None

    def dismiss(self, address: str, user: str | None) -> None:
        self.count -= 1
        _take_one(self.by_address, address)
        if user is not None:
            _take_one(self.by_user, user)

    def change_user(self, before: str | None, now: str) -> None:
        most = self.settings.clients_per_user
        if most and self.by_user[now] >= most:
            raise Problem(
                429,
                f"user {shown(now)} has {most} connections already (the setting http.clients_per_user)",
                "TooManyClients",
                headers=[("retry-after", "1"), ("connection", "close")],
            )
        if before is not None:
            _take_one(self.by_user, before)
        self.by_user[now] += 1


def _take_one(counter: Counter[str], name: str) -> None:
    counter[name] -= 1
    if not counter[name]:
        del counter[name]


class HttpConnection(HttpToolsProtocol):
    """Requests find their connection in the ASGI scope's `state`. `user` is the user of the latest request; while
    `is_responding` a refusal closes the connection without a response of its own."""

    def __init__(
        self, config: uvicorn.Config, state: ServerState, limits: ConnectionLimits, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(config, state, {CONNECTION: self}, loop)
        self._limits = limits
        self._loop = loop
        self._seconds = limits.settings.request_seconds
        self.user: str | None = None
        self.is_responding = False

    @property
    def is_disconnected(self) -> bool:
        return self._client.is_closing()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._client: asyncio.Transport = transport
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else "local"
        self._header_bytes = 0
        self._body_bytes = 0
        self._in_headers = True
        self._is_whole = True
        self._is_stream = False
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        why = self._limits.admit(self._address)
        if why is not None:
            self._refuse(503, why)
            return
        self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.dismiss(self._address, self.user)
        self._stop_clock()
        self._stop_unread_clock()
        super().connection_lost(exc)

    # -- requests ----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._client.is_closing():
            return
        if self._in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        # Bytes after the headers in the same packet do not count: the headers are complete then.
        if self._in_headers and self._header_bytes > self._limits.settings.header_bytes:
            self._refuse(431, f"the headers have more than {self._limits.settings.header_bytes} bytes")
        elif not self._is_whole:
            if self._deadline is None:
                self._start_clock()
        elif self._deadline is not None:
            self._stop_clock()

    def on_message_begin(self) -> None:
        self._is_whole = self._is_stream = False
        self._body_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._header_bytes = 0
        super().on_headers_complete()
        if self._deadline is not None:
            self._start_clock()

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._body_bytes += len(body)
        if self._deadline is not None and (self._is_stream or self._body_bytes >= PART_BYTES):
            self._start_clock()

    def on_message_complete(self) -> None:
        self._in_headers = self._is_whole = True
        super().on_message_complete()

    def expect_stream(self) -> None:
        """Let the body of this request arrive at any rate, as long as some of it arrives within `request_seconds`."""
        self._is_stream = True

    def _start_clock(self) -> None:
        self._stop_clock()
        self._body_bytes = 0
        if self._seconds:
            self._deadline = self._loop.call_later(self._seconds, self._time_out)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _time_out(self) -> None:
        if not self._client.is_reading():  # back-pressure: the server is the slow side
            self._start_clock()
        else:
            what = "the request" if self._in_headers else "the body"
            self._refuse(408, f"{what} did not go on for {self._seconds:g} seconds")

    def _refuse(self, status: int, why: str) -> None:
        self._stop_clock()
        if self._client.is_closing():
            return
        if not self.is_responding:
            body = Problem(status, why).encoded()
            lines = [b"HTTP/1.1 %d %b" % (status, HTTPStatus(status).phrase.encode()), b"connection: close"]
            lines += [b"content-type: %b" % CONTENT_TYPE.encode(), b"content-length: %d" % len(body)]
            is_secure = self._client.get_extra_info("sslcontext") is not None
            headers = [*HEADERS, NO_STORE, *([TRANSPORT_SECURITY] if is_secure else [])]
            lines += [b"%b: %b" % header for header in headers]
            self._client.write(b"\r\n".join([*lines, b"", body]))
        self._client.close()

    # -- responses ---------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._seconds and self._unread is None:
            self._unread = self._loop.call_later(self._seconds, self._client.abort)

    def resume_writing(self) -> None:
        self._stop_unread_clock()
        super().resume_writing()

    def _stop_unread_clock(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def belongs_to(self, user: str) -> None:
        """Raises Problem when the user has too many connections."""
        if user != self.user:
            self._limits.change_user(self.user, user)
            self.user = user
