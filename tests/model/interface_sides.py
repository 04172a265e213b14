"""The interfaces of a walk, each on a store of its own, all with one injected clock.

Both servers run on an event loop inside the process, because a server process could not be given the clock; clients
reach them through sockets.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import penstock
from penstock.servers.access import Users, make_users
from penstock.servers.http import application
from penstock.servers.http.server import HttpListener
from penstock.servers.resp.server import Server
from penstock.settings import HttpSettings, RespSettings
from tests.conformance.clients import open_async, open_sync, run
from tests.conformance.clock import Clock
from tests.conformance.engines import ENGINES
from tests.laws.interfaces import PythonInterface, WalkedInterface
from tests.laws.served_interfaces import HttpInterface, RedisInterface
from tests.laws.sql_interface import SqlInterface
from tests.ports import LOOPBACK

SQLITE, POSTGRES = ENGINES


class WalkSide(NamedTuple):
    """`observer` is the store of the interface through Python: for counts, and for what an interface does not have."""

    name: str
    interface: WalkedInterface
    observer: penstock.Store


class LocalServer:
    """The Redis protocol and HTTP on one store, without the sweeps of `penstock serve`: the walk decides when."""

    def __init__(self, store: Any) -> None:
        users, settings = Users(make_users(None, {})), HttpSettings(port=0)
        self._resp = Server(store, users, RespSettings())
        self.port: int = run(lambda: self._resp.listen(LOOPBACK, 0))
        self._http = HttpListener(application(store, users=users, settings=settings, dashboard=False), settings, None)
        run(self._http.start)
        self.http_url = f"http://{LOOPBACK}:{self._http.port}"

    def stop(self) -> None:
        run(self._http.stop)
        run(self._resp.close)


@contextmanager
def opened_sides(folder: Path, clock: Clock) -> Iterator[list[WalkSide]]:
    """Python on SQLite first: the others are compared with it."""
    settings: dict[str, Any] = {"clock": clock, "random": Random(7).random}
    with ExitStack() as stack:

        def observer(name: str) -> tuple[str, penstock.Store]:
            url = SQLITE.fresh_url(folder / name)
            return url, stack.enter_context(penstock.connect(url, **settings))

        def served(name: str) -> tuple[LocalServer, penstock.Store]:
            url, watching = observer(name)
            store: Any = stack.enter_context(open_async(url, **settings))
            return LocalServer(store._inner), watching

        def side(name: str, interface: WalkedInterface, watching: penstock.Store) -> WalkSide:
            stack.callback(interface.close)
            return WalkSide(name, interface, watching)

        url, python = observer("python")
        sides = [side("python", PythonInterface(open_sync(url, **settings)), python)]
        url, watching = observer("async")
        sides.append(side("async", PythonInterface(open_async(url, **settings)), watching))
        server, watching = served("http")
        sides.append(side("http", HttpInterface(server), watching))
        server, watching = served("redis")
        sides.append(side("redis", RedisInterface(server, by_token=True), watching))
        url = POSTGRES.fresh_url(folder / "sql")
        watching = stack.enter_context(penstock.connect(url, **settings, **POSTGRES.settings(url)))
        sides.append(side("sql", SqlInterface(url, clock), watching))
        yield sides
