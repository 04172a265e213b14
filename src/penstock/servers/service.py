"""The server process: opens the store and its listeners, sweeps, and stops on a signal."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import logging
import os
import signal
import ssl
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.client.aio.connection import connect_async
from penstock.domain.errors import InvalidInput, PenstockError, StoreUnavailable
from penstock.servers.access import User, Users, make_users
from penstock.servers.resp.server import Server, sweep_forever
from penstock.settings import DEFAULT_HTTP_PORT, HttpSettings, RespSettings, UserSettings

if TYPE_CHECKING:
    from penstock.client.aio.store import AsyncStore
    from penstock.servers.http.server import HttpListener

logger = logging.getLogger("penstock.server")
# The writer thread and the event loop share the interpreter: a shorter interval shortens the time from commit to reply.
SWITCH_SECONDS = 0.001
COLLECT_AFTER = 20_000
# Interval of retries for a port that is in use.
PORT_SECONDS = 5.0


class ServerSettings(NamedTuple):
    """The settings of all listeners."""

    resp: RespSettings
    http: HttpSettings


class Ports(NamedTuple):
    """The ports; `http` is None when HTTP is disabled."""

    resp: int
    http: int | None


Tell = Callable[[Ports], None]
Reload = Callable[[], ServerSettings]


def run(url: str, settings: ServerSettings, tell: Tell, reload: Reload) -> None:
    """Serve until SIGTERM or SIGINT. `tell` is called with the ports when they accept clients; SIGHUP reloads users."""
    sys.setswitchinterval(SWITCH_SECONDS)
    # Commands make many short-lived objects without cycles: collect less often, and do not scan objects that exist at
    # the start.
    gc.set_threshold(COLLECT_AFTER, 20, 50)
    gc.freeze()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(url, settings, tell, reload))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        return None
    return uvloop.new_event_loop


async def _serve(url: str, settings: ServerSettings, tell: Tell, reload: Reload) -> None:
    listeners = Listeners(settings)
    stop = asyncio.Event()
    async with await connect_async(url) as store:
        server = Server(store, listeners.resp_users, settings.resp)
        server.store_fails = not await _is_usable(store)
        resp_port = await _listen(server, settings.resp)
        http = await listeners.open_http(store) if settings.http.enabled else None
        _on_signals(stop, listeners, reload)
        sweeping = asyncio.create_task(sweep_forever(store, settings.resp.sweep_seconds))
        tell(Ports(resp_port, None if http is None else http.port))
        await stop.wait()
        sweeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sweeping
        await asyncio.gather(server.close(), *([] if http is None else [http.end()]))


async def _is_usable(store: AsyncStore) -> bool:
    """Refuse an unusable store, such as one without a schema, before clients connect. One that cannot be reached may
    come back."""
    try:
        await store.executor.read(store.engine.epoch)
    except StoreUnavailable as error:
        logger.warning("the store cannot be used yet: %s", error)
        return False
    return True


async def _listen(server: Server, settings: RespSettings) -> int:
    try:
        return await server.listen(settings.host, settings.port, tls_of(settings))
    except OSError as error:
        raise _cannot_listen(settings, error) from None


def _cannot_listen(settings: RespSettings | HttpSettings, error: OSError) -> StoreUnavailable:
    why = os.strerror(error.errno) if error.errno else error.strerror or str(error)
    return StoreUnavailable(f"cannot listen on {settings.host}:{settings.port}: {why}")


class Listeners:
    """The users of each protocol, and how its listener is opened."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.resp_users = Users(users_of(settings.resp))
        self.http_users = Users(http_users_of(settings))

    def replace_users(self, settings: ServerSettings) -> None:
        resp, http = users_of(settings.resp), http_users_of(settings)
        self.resp_users.replace(resp)
        self.http_users.replace(http)

    async def open_http(self, store: AsyncStore) -> HttpService:
        from penstock.servers.http import application
        from penstock.servers.http.server import HttpListener

        settings = self.settings.http
        check_exposure(settings, self.http_users)
        app = application(store, users=self.http_users, settings=settings)
        listener = HttpListener(app, settings, tls_of(settings))
        service = HttpService(listener)
        try:
            await listener.start()
        except OSError as error:
            if settings.port != DEFAULT_HTTP_PORT:
                raise _cannot_listen(settings, error) from None
            # A default port is optional: the other listeners open even if another server has it.
            logger.warning("%s; trying again until it is free (choose another with --http-port)", error)
            service.start_later()
        return service


class HttpService:
    """The HTTP listener, open now or as soon as its port is free."""

    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener
        self._waiting: asyncio.Task[None] | None = None

    @property
    def port(self) -> int | None:
        return self._listener.port if self._waiting is None or self._waiting.done() else None

    def start_later(self) -> None:
        self._waiting = asyncio.create_task(self._try_again())

    async def _try_again(self) -> None:
        while True:
            await asyncio.sleep(PORT_SECONDS)
            with contextlib.suppress(OSError):
                await self._listener.start()
                logger.info("HTTP on port %d", self._listener.port)
                return

    async def end(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        await self._listener.stop()


def _on_signals(stop: asyncio.Event, listeners: Listeners, reload: Reload) -> None:
    loop = asyncio.get_running_loop()

    def read_users() -> None:
        try:
            listeners.replace_users(reload())
        except PenstockError as error:
            logger.error("users stay as they were: %s", error)

    # There are no such signals on Windows, where Ctrl-C ends the loop by itself.
    with contextlib.suppress(NotImplementedError):
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, read_users)


def users_of(settings: RespSettings) -> list[User]:
    return make_users(settings.password, _table(settings.users))


def http_users_of(settings: ServerSettings) -> list[User]:
    """The users of HTTP, else those of the Redis protocol: users of one protocol close the other, too."""
    http = settings.http
    if http.password is None and http.token is None and not http.users:
        return users_of(settings.resp)
    return make_users(http.password, _table(http.users), http.token)


def _table(users: Mapping[str, UserSettings]) -> dict[str, dict[str, object]]:
    return {name: msgspec.structs.asdict(one) for name, one in users.items()}


def check_exposure(settings: HttpSettings, users: Users) -> None:
    """Refuse to serve a store without users to a network."""
    if users.need_password or is_loopback(settings.host):
        return
    raise InvalidInput(
        f"the HTTP server must not listen on {settings.host} without a login: anybody who reaches it could do "
        "everything. Set users, http.password or http.token (see `penstock serve --example-config`), or listen on "
        "127.0.0.1"
    )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def tls_of(settings: RespSettings | HttpSettings) -> ssl.SSLContext | None:
    if settings.tls_certificate is None:
        if settings.tls_key is not None or settings.tls_client_authority is not None:
            raise InvalidInput("tls_key and tls_client_authority need a tls_certificate")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key)
        if settings.tls_client_authority is not None:
            context.load_verify_locations(settings.tls_client_authority)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(f"TLS with {settings.tls_certificate}: {error}") from None
    return context
