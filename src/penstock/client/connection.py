"""From a URL to a store."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from typing import Any, Unpack

from penstock.client.store import Store
from penstock.domain.errors import InvalidInput, InvalidUrl, MissingExtra
from penstock.domain.validation import nearest, shown
from penstock.engines.connect_settings import ConnectSettings
from penstock.engines.contract import Engine

SQLITE_PREFIX = "sqlite:///"
SCHEMES = ("sqlite", "postgresql", "postgres", "postgresql+embedded")


def connect(url: str, **settings: Unpack[ConnectSettings]) -> Store:
    """Open the store at a URL: `sqlite:///app.db` (relative), `sqlite:////var/app.db` or `sqlite:///:memory:`;
    `postgresql://user@host/database`; `postgresql+embedded:///folder` for a server of one's own, to try things.

    `settings` go to the engine: `busy_seconds`, how long a call waits for another writer or for a connection; for
    PostgreSQL also `pool_size`, `prepare`, `listen` and `pool`.
    """
    return Store(open_engine(url, **settings))


def open_engine(url: str, **settings: Any) -> Engine:
    if not isinstance(url, str):
        raise InvalidUrl(f"a store URL is a string such as sqlite:///app.db, not {shown(url)}")
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise InvalidUrl(f"{_harmless(url)} is not a store URL: use one such as sqlite:///app.db")
    if scheme == "sqlite":
        from penstock.engines.sqlite import open_sqlite

        _check_settings(settings, open_sqlite)
        return open_sqlite(_sqlite_path(url, rest), **settings)
    if scheme in SCHEMES:
        postgres = _postgres()
        _check_settings(settings, postgres.open_postgres)
        if scheme == "postgresql+embedded":
            embedded: Engine = postgres.open_embedded(_embedded_path(url, rest), **settings)
            return embedded
        engine: Engine = postgres.open_postgres(url, **settings)
        return engine
    raise InvalidUrl(
        f"unknown store scheme {_harmless(scheme)}: this version knows {', '.join(SCHEMES)}{nearest(scheme, SCHEMES)}"
    )


def absent_store(url: str) -> str | None:
    """Return why there is no store at a URL that opening would create one at; None for a server, which creates none."""
    scheme, _, rest = url.partition("://")
    if scheme != "sqlite":
        return None
    from penstock.engines import sqlite

    return sqlite.absent_store(_sqlite_path(url, rest))


def schema_script(url: str) -> str:
    """The SQL that makes the schema of a store on a server, for people who run it themselves."""
    if url.partition("://")[0] not in ("postgresql", "postgres", "postgresql+embedded"):
        raise InvalidUrl(f"{_harmless(url)}: only a store on a server has a schema to print; others make their own")
    _postgres()
    from penstock.engines.postgres import migration

    return migration.script()


def _check_settings(settings: dict[str, Any], opener: Callable[..., Engine]) -> None:
    known = list(inspect.signature(opener).parameters)[1:]
    for name in settings:
        if name not in known:
            raise InvalidInput(
                f"unknown setting {shown(name)}: this store has {', '.join(known)}{nearest(name, known)}"
            )


def _postgres() -> Any:
    try:
        from penstock.engines import postgres
    except ImportError as error:
        raise MissingExtra(
            f"a PostgreSQL store needs psycopg ({error}): pip install 'penstock-queue[postgres]'"
        ) from None
    return postgres


def _embedded_path(url: str, rest: str) -> str:
    host, slash, path = rest.partition("/")
    if host or not slash or not path or "\0" in path:
        raise InvalidUrl(f"{_harmless(url)} has no folder: use postgresql+embedded:///folder")
    return path


def _sqlite_path(url: str, rest: str) -> str:
    """As SQLAlchemy has it: three slashes for a relative path, four for an absolute one."""
    host, slash, path = rest.partition("/")
    if host or not slash or not path:
        raise InvalidUrl(
            f"{_harmless(url)} has no path: use sqlite:///app.db, sqlite:////var/app.db or sqlite:///:memory:"
        )
    if "?" in path or "\0" in path:
        raise InvalidUrl(f"{_harmless(url)}: a SQLite path has no '?' and no NUL")
    return path


def _harmless(url: str) -> str:
    """A malformed URL for an error message, without anything that may be a password: that can be anywhere between the
    first colon and the last @."""
    before, at, host = url.rpartition("@")
    if at:
        scheme, separator, user = before.rpartition("://") if before.count("://") == 1 else ("", "", before)
        name, colon, _ = user.partition(":")
        url = f"{scheme}{separator}{name}:***@{host}" if colon else url
    return shown(_PARAMETER.sub(r"\1***", url))


def absolute_url(url: str) -> str:
    """The same store for a process with another working directory."""
    path = url.removeprefix(SQLITE_PREFIX)
    if not url.startswith(SQLITE_PREFIX) or path in ("", ":memory:") or os.path.isabs(path):
        return url
    return SQLITE_PREFIX + os.path.abspath(path)


def redacted(url: str, text: str | None = None) -> str:
    """The URL, or a text that quotes it, without its password: for people and logs; also when it is not quite a URL."""
    shown_text = url if text is None else text
    for pattern in _PASSWORDS:
        for before, password, after in pattern.findall(url):
            shown_text = shown_text.replace(before + password + after, f"{before}***{after}")
    return shown_text


# As libpq allows, among the parameters of a URL or in a list of words.
_PARAMETER = re.compile(r"((?:^|[?&\s])(?:ssl)?password=)([^&\s]+)()", re.IGNORECASE)
_PASSWORDS = (
    # Up to the last @ there is: a password that was not quoted may hold anything.
    re.compile(r"//[^:/@]*(:)(.+)(@)"),
    re.compile(r"^[^:/@]*(:)([^/]+)(@)"),
    _PARAMETER,
)
