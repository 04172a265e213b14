"""From a URL to a store."""

from __future__ import annotations

import os
import re
from typing import Any

from penstock.client.store import Store
from penstock.domain.errors import InvalidUrl
from penstock.domain.names import nearest, shown
from penstock.engines.contract import Engine

SCHEMES = ("sqlite",)


def connect(url: str, **settings: Any) -> Store:
    """Open the store at a URL, such as `sqlite:///app.db` (relative), `sqlite:////var/app.db` or `sqlite:///:memory:`.

    `settings` go to the engine: for SQLite `busy_seconds`, how long a call waits for another writer.
    """
    return Store(open_engine(url, **settings))


def open_engine(url: str, **settings: Any) -> Engine:
    if not isinstance(url, str):
        raise InvalidUrl(f"a store URL is a string such as sqlite:///app.db, not {shown(url)}")
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise InvalidUrl(f"{shown(url)} is not a store URL: use one such as sqlite:///app.db")
    if scheme == "sqlite":
        from penstock.engines.sqlite import open_sqlite

        return open_sqlite(_sqlite_path(url, rest), **settings)
    raise InvalidUrl(
        f"unknown store scheme {shown(scheme)}: this version knows {', '.join(SCHEMES)}{nearest(scheme, SCHEMES)}"
    )


def _sqlite_path(url: str, rest: str) -> str:
    """As SQLAlchemy has it: three slashes for a relative path, four for an absolute one."""
    host, slash, path = rest.partition("/")
    if host or not slash or not path:
        raise InvalidUrl(f"{shown(url)} has no path: use sqlite:///app.db, sqlite:////var/app.db or sqlite:///:memory:")
    if "?" in path or "\0" in path:
        raise InvalidUrl(f"{shown(url)}: a SQLite path has no '?' and no NUL")
    return path


def absolute_url(url: str) -> str:
    """The same store for a process that was started in another folder."""
    start = "sqlite:///"
    path = url.removeprefix(start)
    if not url.startswith(start) or path in ("", ":memory:") or os.path.isabs(path):
        return url
    return start + os.path.abspath(path)


def redacted(url: str) -> str:
    """The URL without its password, for people and logs; also when it is not quite a URL."""
    return _PASSWORD.sub(r"\1***\2", url)


_PASSWORD = re.compile(r"(//[^:/@]*:)[^/]*(@)")
