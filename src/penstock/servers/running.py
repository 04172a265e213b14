"""Running the server: opening the store, listening, sweeping, and stopping when told to."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import ssl
import sys
from collections.abc import Callable

import msgspec

from penstock.client.aio.connecting import connect_async
from penstock.domain.errors import InvalidInput, PenstockError, StoreUnavailable
from penstock.servers.access import User, Users, make_users
from penstock.servers.resp.server import Server, sweep_forever
from penstock.settings import RespSettings

logger = logging.getLogger("penstock.resp")
# The writer thread and the event loop share the interpreter: the shorter this is, the sooner a commit is answered.
SWITCH_SECONDS = 0.001
COLLECT_AFTER = 20_000


def run(url: str, settings: RespSettings, tell: Callable[[int], None], reload: Callable[[], RespSettings]) -> None:
    """Serve until SIGTERM or SIGINT. `tell` is called with the port when clients may come; SIGHUP reads users anew."""
    sys.setswitchinterval(SWITCH_SECONDS)
    # Commands make many objects that are gone with their reply, none of them in a cycle: looking for cycles that often
    # costs more than it finds, and what is there from the start need not be looked at.
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


async def _serve(
    url: str, settings: RespSettings, tell: Callable[[int], None], reload: Callable[[], RespSettings]
) -> None:
    users = Users(users_of(settings))
    tls = tls_of(settings)
    stop = asyncio.Event()
    async with await connect_async(url) as store:
        server = Server(store, users, settings)
        try:
            port = await server.listen(settings.host, settings.port, tls)
        except OSError as error:
            why = error.strerror or error
            raise StoreUnavailable(f"cannot listen on {settings.host}:{settings.port}: {why}") from None
        _on_signals(stop, users, reload)
        sweeping = asyncio.create_task(sweep_forever(store, settings.sweep_seconds))
        tell(port)
        await stop.wait()
        sweeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sweeping
        await server.close()


def _on_signals(stop: asyncio.Event, users: Users, reload: Callable[[], RespSettings]) -> None:
    loop = asyncio.get_running_loop()

    def read_users() -> None:
        try:
            users.replace(users_of(reload()))
        except PenstockError as error:
            logger.error("users stay as they were: %s", error)

    # There are no such signals on Windows, where Ctrl-C ends the loop by itself.
    with contextlib.suppress(NotImplementedError):
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, read_users)


def users_of(settings: RespSettings) -> list[User]:
    return make_users(settings.password, {name: msgspec.structs.asdict(one) for name, one in settings.users.items()})


def tls_of(settings: RespSettings) -> ssl.SSLContext | None:
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
