"""The address of a store, and the same store through a proxy."""

from __future__ import annotations

from urllib.parse import urlencode

import penstock
from penstock.chaos.proxy import LOOPBACK, Proxy

DEFAULT_PORT = "5432"


def is_postgres(url: str) -> bool:
    return url.startswith("postgres")


def check_url(url: str) -> None:
    """Processes must be able to share the store."""
    if ":memory:" in url:
        raise penstock.InvalidUrl("a store in memory belongs to one process: name a file, such as sqlite:///chaos.db")
    if url.startswith("postgresql+embedded"):
        raise penstock.InvalidUrl("an embedded server of the run's own is asked for with --server embedded")


def through_proxy(url: str) -> tuple[Proxy, str]:
    """A proxy in front of a PostgreSQL server, and the URL that leads through it. The name of the host stays, so that
    certificates and password files fit."""
    from psycopg.conninfo import conninfo_to_dict

    settings = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    host, port = settings.get("host", "/tmp"), settings.get("port", DEFAULT_PORT)
    if "," in host:
        raise penstock.InvalidUrl("chaos takes a URL with one host")
    if host.startswith("/"):
        proxy = Proxy(f"{host}/.s.PGSQL.{port}")
        settings["host"] = LOOPBACK
    else:
        proxy = Proxy((settings.get("hostaddr", host), int(port)))
        settings["hostaddr"] = LOOPBACK
    settings["port"] = str(proxy.port)
    database = settings.pop("dbname", "")
    return proxy, f"postgresql:///{database}?{urlencode(settings)}"
