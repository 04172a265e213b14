"""From a URL to a store."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple, Unpack

from penstock.client.store import Store
from penstock.domain.errors import InvalidInput, InvalidUrl, MissingExtra
from penstock.domain.validation import nearest, shown
from penstock.engines.connect_settings import ConnectSettings
from penstock.engines.contract import Engine

SQLITE_PREFIX = "sqlite:///"


class EngineEntry(NamedTuple):
    """How the URLs of some schemes become a store. An engine adds a row to `ENGINES`.

    `opener` names a function of `module`. It takes the location, then the settings as keywords; `signature` names
    another one that lists these settings. `driver` and `extra` are for the error if importing the module fails. The
    module may also have `absent_store(location)` if opening a store creates it, and `schema_script()` if `migrate`
    creates the schema."""

    schemes: tuple[str, ...]
    module: str
    opener: str
    title: str
    driver: str = ""
    extra: str = ""
    location: Callable[[str], str] = lambda url: url
    signature: str = ""

    def load(self) -> ModuleType:
        try:
            return import_module(self.module)
        except ImportError as error:
            if not self.extra:
                raise
            raise MissingExtra(
                f"a {self.title} store needs {self.driver} ({error}): pip install 'penstock-queue[{self.extra}]'"
            ) from None


def connect(url: str, **settings: Unpack[ConnectSettings]) -> Store:
    """Open the store at a URL: `sqlite:///app.db` (relative), `sqlite:////var/app.db` or `sqlite:///:memory:`;
    `postgresql://user@host/database`; `postgresql+embedded:///folder` for a server of one's own, to try things;
    `redis://host/0`, `redis+cluster://host1,host2/` or `redis+sentinel://host1,host2/name/0`.

    `settings` go to the engine: `busy_seconds`, how long a call waits for another writer or for a connection; for
    PostgreSQL also `pool_size`, `prepare`, `listen` and `pool`.
    """
    return Store(open_engine(url, **settings))


def open_engine(url: str, **settings: Any) -> Engine:
    entry = _entry(url)
    module = entry.load()
    opener: Callable[..., Engine] = getattr(module, entry.opener)
    _check_settings(settings, getattr(module, entry.signature or entry.opener))
    return opener(entry.location(url), **settings)


def absent_store(url: str) -> str | None:
    """Return why there is no store at a URL that opening would create one at; None for a server, which creates none."""
    entry = _entry(url)
    absent: Callable[[str], str | None] | None = getattr(entry.load(), "absent_store", None)
    return None if absent is None else absent(entry.location(url))


def schema_script(url: str) -> str:
    """The SQL that makes the schema of a store on a server, for people who run it themselves."""
    script: Callable[[], str] | None = getattr(_entry(url).load(), "schema_script", None)
    if script is None:
        raise InvalidUrl(f"{_harmless(url)}: only a store on a server has a schema to print; others make their own")
    return script()


def _entry(url: str) -> EngineEntry:
    if not isinstance(url, str):
        raise InvalidUrl(f"a store URL is a string such as sqlite:///app.db, not {shown(url)}")
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise InvalidUrl(f"{_harmless(url)} is not a store URL: use one such as sqlite:///app.db")
    for entry in ENGINES:
        if scheme in entry.schemes:
            return entry
    raise InvalidUrl(
        f"unknown store scheme {_harmless(scheme)}: this version knows {', '.join(SCHEMES)}{nearest(scheme, SCHEMES)}"
    )


def _check_settings(settings: dict[str, Any], opener: Callable[..., Engine]) -> None:
    known = list(inspect.signature(opener).parameters)[1:]
    for name in settings:
        if name not in known:
            raise InvalidInput(
                f"unknown setting {shown(name)}: this store has {', '.join(known)}{nearest(name, known)}"
            )


def _embedded_path(url: str) -> str:
    host, slash, path = url.partition("://")[2].partition("/")
    if host or not slash or not path or "\0" in path:
        raise InvalidUrl(f"{_harmless(url)} has no folder: use postgresql+embedded:///folder")
    return path


def _sqlite_path(url: str) -> str:
    """As SQLAlchemy has it: three slashes for a relative path, four for an absolute one."""
    host, slash, path = url.partition("://")[2].partition("/")
    if host or not slash or not path:
        raise InvalidUrl(
            f"{_harmless(url)} has no path: use sqlite:///app.db, sqlite:////var/app.db or sqlite:///:memory:"
        )
    if "?" in path or "\0" in path:
        raise InvalidUrl(f"{_harmless(url)}: a SQLite path has no '?' and no NUL")
    return path


ENGINES = (
    EngineEntry(("sqlite",), "penstock.engines.sqlite", "open_sqlite", "SQLite", location=_sqlite_path),
    EngineEntry(
        ("postgresql", "postgres"), "penstock.engines.postgres", "open_postgres", "PostgreSQL", "psycopg", "postgres"
    ),
    EngineEntry(
        ("postgresql+embedded",), "penstock.engines.postgres", "open_embedded", "PostgreSQL", "psycopg", "postgres",
        _embedded_path, "open_postgres",
    ),
    EngineEntry(
        ("redis", "rediss", "redis+unix", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel"),
        "penstock.engines.redis", "open_redis", "Redis", "redis", "redis",
    ),
    EngineEntry(
        ("mysql", "mariadb"), "penstock.engines.mariadb", "open_mariadb", "MariaDB or MySQL", "PyMySQL", "mariadb"
    ),
)  # fmt: skip
SCHEMES = tuple(scheme for entry in ENGINES for scheme in entry.schemes)


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
_PARAMETER = re.compile(r"((?:^|[?&\s])(?:ssl|sentinel_)?password=)([^&\s]+)()", re.IGNORECASE)
_PASSWORDS = (
    # Up to the last @ there is: a password that was not quoted may hold anything.
    re.compile(r"//[^:/@]*(:)(.+)(@)"),
    re.compile(r"^[^:/@]*(:)([^/]+)(@)"),
    _PARAMETER,
)
