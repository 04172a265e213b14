"""The server: its listeners, its connections, and an orderly shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections import Counter

from penstock.client.aio.store import AsyncStore
from penstock.servers.access import Users
from penstock.servers.logins import Logins
from penstock.servers.resp import commands as _commands  # noqa: F401  # fills the table
from penstock.servers.resp.backend import Backend
from penstock.servers.resp.blocking import WaitLists
from penstock.servers.resp.connection import Connection
from penstock.servers.resp.errors import CommandError
from penstock.servers.resp.presence import Presence
from penstock.servers.resp.timeouts import Timeouts
from penstock.settings import Limits, RespSettings
from penstock.workers.sweeper import Sweeper

logger = logging.getLogger("penstock.resp")
# Interval at which timeouts of clients are checked.
LOOK_EVERY_SECONDS = 1.0
# Time for commands under way to finish at shutdown.
GRACE_SECONDS = 10.0
KEEPALIVE_SECONDS = 30
PROTECTED = (
    "DENIED Penstock is running in protected mode: no password is set, so only clients on this machine may connect. "
    "Set a password or users (see `penstock serve --example-config`) and restart it."
)


class Server:
    def __init__(self, store: AsyncStore, users: Users, settings: RespSettings | None = None) -> None:
        settings = settings or RespSettings()
        self.store = store
        self.users = users
        self.limits: Limits = settings
        self.stream_lease_seconds = settings.stream_lease_seconds
        self.max_block_seconds = settings.max_block_seconds
        self.backend = Backend(store)
        self.blocked = WaitLists(self.backend)
        self.presence = Presence(store, self.blocked.listeners)
        self.blocked.changed = self.presence.note_change
        self.logins = Logins(users, self.limits.failed_logins_per_second)
        self.started_at = time.time()
        self.connections: set[Connection] = set()
        self.timeouts = Timeouts()
        self.background = 0  # sends in progress whose reply did not wait for the commit
        self.store_fails = False  # while the store fails, every reply waits for the commit
        self.total_connections = 0
        self._answered: list[Connection] = []
        self._listeners: list[asyncio.Server] = []
        self._looking: asyncio.Task[None] | None = None
        self.is_closing = False

    async def listen(self, host: str | None, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen, and return the port (0 asks for any free one)."""
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(lambda: Connection(self), host, port, ssl=tls, backlog=1024)
        self._listeners.append(listener)
        if self._looking is None:
            self._looking = loop.create_task(self._look_after_clients())
        bound: int = listener.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Accept no more clients, finish commands under way, then disconnect."""
        self.is_closing = True
        for listener in self._listeners:
            listener.close()
        if self._looking is not None:
            self._looking.cancel()
        for connection in list(self.connections):
            connection.retire()
        ends = time.monotonic() + GRACE_SECONDS
        while (self.connections or self.background) and time.monotonic() < ends:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.transport.abort()
        await self.presence.close()

    # -- clients ---------------------------------------------------------------------------------------------------

    def admit(self, connection: Connection) -> str | None:
        """Register a client, or return why it is refused."""
        session, limits = connection.session, self.limits
        self.total_connections += 1
        self.connections.add(connection)
        _keep_alive(connection.transport.get_extra_info("socket"))
        if self.is_closing:
            return "ERR the server is stopping"
        if not session.is_local and not self.users.need_password:
            return PROTECTED
        if limits.clients and len(self.connections) > limits.clients:
            return "ERR max number of clients reached"
        if limits.clients_per_address:
            here = sum(one.session.address == session.address for one in self.connections)
            if here > limits.clients_per_address:
                return "ERR max number of clients reached for this address"
        return None

    def flush_soon(self, connection: Connection) -> None:
        """Flush the connection after all replies of a commit."""
        self._answered.append(connection)
        if len(self._answered) == 1:
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        answered, self._answered = self._answered, []
        for connection in answered:
            connection.go_on()

    @property
    def blocked_clients(self) -> int:
        return self.blocked.count() + sum(one.session.is_waiting for one in self.connections)

    def dismiss(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.timeouts.forget(connection)

    def check_user_limit(self, name: str) -> None:
        most = self.limits.clients_per_user
        if most and self.clients_by_user()[name] >= most:
            raise CommandError(f"ERR max number of clients reached for user {name}")

    def clients_by_user(self) -> Counter[str | None]:
        return Counter(one.session.user_name for one in self.connections)

    async def _look_after_clients(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_SECONDS)
            now = asyncio.get_running_loop().time()
            for connection in self.timeouts.due(now):
                if connection.times_out_at() < now:
                    logger.info("client %d kept the server waiting: closed", connection.session.id)
                    connection.transport.abort()
                connection.schedule_check(now)


async def sweep_forever(store: AsyncStore, every_seconds: float) -> None:
    """Maintenance while the server runs, shared with every worker and server of the same store."""
    sweeper = Sweeper(store.engine, every_seconds)
    while True:
        await asyncio.sleep(await store.executor.write(sweeper.turn, alone=True))


def _keep_alive(sock: socket.socket | None) -> None:
    if sock is None or sock.family == getattr(socket, "AF_UNIX", None):
        return
    with contextlib.suppress(OSError, AttributeError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_SECONDS)
