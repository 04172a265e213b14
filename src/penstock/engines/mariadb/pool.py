"""Connections of a store: made when they are needed, used again, and replaced when the server has ended them."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pymysql
from pymysql.cursors import Cursor

from penstock.domain.errors import EngineTooOld, PenstockError, StoreUnavailable
from penstock.engines.mariadb import errors
from penstock.engines.mariadb.link import CONVERSIONS, FLAGS, PooledLink
from penstock.engines.mariadb.location import ServerLocation

OLDEST_MARIADB = (10, 6)
OLDEST_MYSQL = (8, 0, 36)
# How long the network may be silent during a statement, beyond the wait for locks.
NETWORK_SECONDS = 30


class LinkPool:
    def __init__(
        self, location: ServerLocation, size: int, busy_seconds: float, prepare: Callable[[PooledLink], None]
    ) -> None:
        self.location = location
        self.size = size
        self.busy_seconds = busy_seconds
        self._prepare = prepare
        self._node = 0
        self._closed = False
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._answered = threading.Condition(lock)
        self._idle: list[PooledLink] = []
        # Packets whose commit the server has still to answer.
        self._commits: set[Cursor] = set()
        self._count = 0
        self._process = os.getpid()

    def take(self) -> PooledLink:
        """A connection that nobody else uses; wait for one when all are busy."""
        if self._process != os.getpid():
            self.forked()
        ends = time.monotonic() + self.busy_seconds
        while True:
            link = self._wait_for_one(ends)
            if link is None:
                break
            if self._is_free(link):
                link.is_used = False
                return link
        try:
            return self.open()
        except BaseException:
            self._forget_one()
            raise

    def _wait_for_one(self, ends: float) -> PooledLink | None:
        """An idle connection; None when there is room for another one."""
        with self._changed:
            while True:
                if self._closed:
                    raise StoreUnavailable(f"{self.location.name}: this store was closed")
                if self._has_idle():
                    return self._idle.pop()
                if self._count < self.size:
                    self._count += 1
                    return None
                left = ends - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    raise StoreUnavailable(
                        f"all {self.size} connections were busy for {self.busy_seconds:g} s; raise pool_size"
                    )

    def take_alive(self) -> PooledLink | None:
        """An idle connection that the server has not ended; None when there is none."""
        if self._process != os.getpid():
            return None
        with self._changed:
            if self._closed or not self._has_idle():
                return None
            link = self._idle.pop()
        if not self._is_free(link):
            return None
        if link.has_ended():
            self.drop(link)
            return None
        return link

    def _has_idle(self) -> bool:
        """The server may still be busy with the commit of a connection that was just given back. While that is the only
        one and there is room, another one is made."""
        if len(self._idle) == 1 and self._count < self.size:
            return self._idle[0].is_finished
        return bool(self._idle)

    def _is_free(self, link: PooledLink) -> bool:
        """Wait for what the server has still to answer; False when the connection has ended meanwhile."""
        commit = link.unfinished
        if commit is None:
            return True
        try:
            link.finish()
        except (pymysql.MySQLError, OSError):
            self.drop(link)
            return False
        finally:
            with self._answered:
                self._commits.discard(commit)
                self._answered.notify_all()
        return True

    def await_commits(self) -> None:
        """Wait for the answers to all commits, so that a snapshot has the receives that have returned."""
        if not self._commits or self._process != os.getpid():
            return
        with self._answered:
            commits = self._commits.copy()
            links = [link for link in self._idle if link.unfinished in commits]
            self._idle = [link for link in self._idle if link not in links]
        for link in links:
            if self._is_free(link):
                self.give_back(link)
        # Other threads read the rest.
        with self._answered:
            self._answered.wait_for(lambda: commits.isdisjoint(self._commits), self.busy_seconds)

    def give_back(self, link: PooledLink) -> None:
        with self._changed:
            if self._closed:
                link.connection.close()
            elif link.unfinished is None:
                self._idle.append(link)
            else:
                self._commits.add(link.unfinished)
                self._idle.insert(0, link)
            self._changed.notify()

    def drop(self, link: PooledLink) -> None:
        """Close a connection whose state is not known."""
        abandon(link.connection)
        self._forget_one()

    def _forget_one(self) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify()

    def open(self) -> PooledLink:
        """Connect to the node that answered last, else to the next one that does."""
        nodes = self.location.hosts
        failure: BaseException | None = None
        for step in range(len(nodes)):
            node = (self._node + step) % len(nodes)
            try:
                link = self._connect(*nodes[node])
            # The driver raises RuntimeError for a way to log in that needs another package.
            except (pymysql.MySQLError, OSError, RuntimeError) as error:
                failure = error
            except StoreUnavailable as error:
                failure = error
            else:
                self._node = node
                return link
        assert failure is not None
        if isinstance(failure, PenstockError):
            raise failure
        raise errors.refused(failure, self.location.name) from failure

    def _connect(self, host: str, port: int) -> PooledLink:
        wait = int(self.busy_seconds) + NETWORK_SECONDS
        connection: pymysql.Connection[Any] = pymysql.connect(
            **self.location.arguments(host, port), charset="utf8mb4", autocommit=True, conv=CONVERSIONS,
            client_flag=FLAGS, read_timeout=wait, write_timeout=wait, defer_connect=True,
        )  # fmt: skip
        try:
            made = _connected_socket(connection)
            link = PooledLink(connection, 1 << 20, made.fileno())
            connection.connect(made)
            self._prepare(link)
        except BaseException:
            abandon(connection)
            raise
        return link

    def close(self) -> None:
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._commits.clear()
            self._changed.notify_all()
            self._answered.notify_all()
        if self._process == os.getpid():
            for link in idle:
                abandon(link.connection)

    def forked(self) -> None:
        """A child leaves the connections of its parent alone and opens its own."""
        _inherited.extend(self._idle)
        self._reset()


def _connected_socket(connection: pymysql.Connection[Any]) -> socket.socket:
    """A socket for the driver, which leaves its own open when connecting fails, and hides it when it does not."""
    path = connection.unix_socket
    if not path:
        address = (connection.host, connection.port)
        made = socket.create_connection(address, connection.connect_timeout)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return made
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(connection.connect_timeout)
        made.connect(path)
    except BaseException:
        made.close()
        raise
    return made


def abandon(connection: pymysql.Connection[Any]) -> None:
    """Close a connection, whatever state it is in."""
    with suppress(pymysql.MySQLError, OSError):
        connection.close()


def check_version(text: str) -> bool:
    """Refuse a server that is too old; say whether it is MariaDB."""
    is_mariadb = "mariadb" in text.lower()
    # Replication tools of MariaDB once needed a version number below 5.6 in front.
    found = re.match(r"(?:5\.5\.5-)?(\d+)\.(\d+)\.(\d+)", text)
    if found is None:
        raise EngineTooOld(f"the server says that its version is {text!r}: Penstock needs MariaDB 10.6 or MySQL 8.0.36")
    version = tuple(int(part) for part in found.groups())
    if version < (OLDEST_MARIADB if is_mariadb else OLDEST_MYSQL):
        raise EngineTooOld(f"the server is {text}: Penstock needs MariaDB 10.6 or MySQL 8.0.36, or newer")
    return is_mariadb


_pools: weakref.WeakSet[LinkPool] = weakref.WeakSet()
# Connections of a parent process, kept unused: closing them here would end the parent's sessions.
_inherited: list[PooledLink] = []


def _after_fork() -> None:
    for pool in list(_pools):
        pool.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
