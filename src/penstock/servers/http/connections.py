"""One client's connection: uvicorn's protocol, for clients that are not trusted.

Their number is bounded over all, by address and by user; the size of headers too; and nobody may let the server wait:
a request that was begun must go on, and an answer must be read.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from penstock.domain.names import shown
from penstock.servers.http.answering import Answer
from penstock.servers.http.problems import CONTENT_TYPE, Problem
from penstock.servers.http.routing import EXCHANGE
from penstock.servers.http.shielding import PLAIN_HEADERS, SECURE_HEADERS
from penstock.settings import HttpSettings

# A body must bring so many bytes in the time that is allowed for one part, or its end.
PART_BYTES = 64 << 10


class Clients:
    """How many there are, over all, by address and by user."""

    def __init__(self, settings: HttpSettings) -> None:
        self.settings = settings
        self.count = 0
        self.by_address: Counter[str] = Counter()
        self.by_user: Counter[str] = Counter()

    def admit(self, address: str) -> str | None:
        """Why not, if not. Whoever is counted must be dismissed, also who was refused."""
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


class Connection(HttpToolsProtocol):
    """`user` is who the latest request came from."""

    def __init__(
        self, config: uvicorn.Config, state: ServerState, clients: Clients, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(config, state, {}, loop)
        self._clients = clients
        self._seconds = clients.settings.request_seconds
        self.user: str | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.shield = SECURE_HEADERS if self.scheme == "https" else PLAIN_HEADERS
        self._address = "local" if self.client is None else self.client[0]
        self._header_bytes = 0
        self._body_bytes = 0
        self._in_headers = True
        self._is_whole = True
        self._is_stream = False
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        why = self._clients.admit(self._address)
        if why is not None:
            self._refuse(503, why)
            return
        self._expect_more()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clients.dismiss(self._address, self.user)
        self._stop_clock()
        self.resume_writing()
        super().connection_lost(exc)

    # -- what comes --------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        # What follows the headers in the same packet is not theirs, and they are whole then.
        if self._in_headers and self._header_bytes > self._clients.settings.header_bytes:
            self._refuse(431, f"the headers have more than {self._clients.settings.header_bytes} bytes")
        elif self._is_whole:
            self._stop_clock()
        elif self._deadline is None:
            self._expect_more()

    def on_message_begin(self) -> None:
        self._is_whole = self._is_stream = False
        self._body_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._header_bytes = 0
        super().on_headers_complete()
        # The task that was made for the request begins later.
        self.scope[EXCHANGE] = Exchange(self, self.cycle)  # type: ignore[literal-required]  # our own word
        if self._deadline is not None:
            self._expect_more()

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._body_bytes += len(body)
        if self._deadline is not None and (self._is_stream or self._body_bytes >= PART_BYTES):
            self._expect_more()

    def on_message_complete(self) -> None:
        self._in_headers = self._is_whole = True
        super().on_message_complete()

    def expect_stream(self) -> None:
        """The body of this request may come as slowly as it likes, as long as it comes."""
        self._is_stream = True

    def _expect_more(self) -> None:
        self._stop_clock()
        self._body_bytes = 0
        if self._seconds:
            self._deadline = self.loop.call_later(self._seconds, self._give_up)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        if self.flow.read_paused:  # it is the server that does not get on
            self._expect_more()
        else:
            what = "the request" if self._in_headers else "the body"
            self._refuse(408, f"{what} did not go on for {self._seconds:g} seconds")

    def _refuse(self, status: int, why: str) -> None:
        """What has been answered already cannot be taken back; then it is only hung up."""
        self._stop_clock()
        if self.transport.is_closing():
            return
        if not self._is_answering():
            told = Problem(status, why).encoded()
            head = written_head(status, CONTENT_TYPE, len(told), b"connection: close\r\n" + self.shield)
            self.transport.write(head + told)
        self.transport.close()

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and cycle.response_started and not cycle.response_complete

    # -- what goes ---------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._seconds and self._unread is None:
            self._unread = self.loop.call_later(self._seconds, self.transport.abort)

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().resume_writing()

    def belongs_to(self, user: str) -> None:
        """Raises Problem when the user has too many already."""
        if user != self.user:
            self._clients.change_user(self.user, user)
            self.user = user


class Exchange:
    """A request and its answer, for an application that knows more of its server than ASGI tells."""

    __slots__ = ("_connection", "_cycle")

    def __init__(self, connection: Connection, cycle: RequestResponseCycle) -> None:
        self._connection = connection
        self._cycle = cycle

    @property
    def is_gone(self) -> bool:
        """Whether the client has hung up by now."""
        return self._cycle.transport.is_closing()

    def belongs_to(self, user: str) -> None:
        self._connection.belongs_to(user)

    def expect_stream(self) -> None:
        self._connection.expect_stream()

    async def answer(self, answer: Answer) -> None:
        """Head and body in one piece. Otherwise as uvicorn sends a whole answer."""
        cycle = self._cycle
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if cycle.disconnected:
            return
        extra = self._connection.shield if cycle.keep_alive else b"connection: close\r\n" + self._connection.shield
        for name, value in cycle.default_headers:
            extra += b"%b: %b\r\n" % (name, value)
        is_bodiless = cycle.scope["method"] == "HEAD"
        head = written_head(answer.status_code, answer.media_type, len(answer.body), extra)
        cycle.transport.write(head if is_bodiless else head + answer.body)
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()


def written_head(status: int, kind: str, length: int, others: bytes) -> bytes:
    return b"%bcontent-type: %b\r\ncontent-length: %d\r\n%b\r\n" % (
        STATUS_LINE[status],
        kind.encode("ascii"),
        length,
        others,
    )
