"""The address of a store, and the same store through a proxy."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import penstock
from penstock.chaos.proxy import LOOPBACK, Proxy

ENGINES = {"sqlite": "sqlite", "postgres": "postgres", "postgresql": "postgres", "mysql": "mariadb",
           "mariadb": "mariadb", "redis": "redis", "rediss": "redis", "redis+unix": "redis", "redis+cluster": "redis",
           "rediss+cluster": "redis", "redis+sentinel": "redis", "rediss+sentinel": "redis"}  # fmt: skip
PORTS = {"postgres": 5432, "mariadb": 3306, "redis": 6379}


def engine_of(url: str) -> str:
    return ENGINES.get(url.partition("://")[0], "")


def is_cluster(url: str) -> bool:
    return url.partition("://")[0].endswith("+cluster")


def check_url(url: str) -> None:
    """Refuse a store that processes cannot share."""
    if ":memory:" in url:
        raise penstock.InvalidUrl("a store in memory belongs to one process: name a file, such as sqlite:///chaos.db")
    if url.startswith("postgresql+embedded"):
        raise penstock.InvalidUrl("an embedded server of the run's own is asked for with --server embedded")


def through_proxy(url: str) -> tuple[Proxy | None, str]:
    """Start a proxy in front of the server and return it with the URL that leads through it. Returns None and the URL
    itself where no proxy is possible: a file, several named servers, or TLS with a certificate for the host's name."""
    if engine_of(url) == "postgres":
        return _postgres(url)
    if engine_of(url) == "sqlite":
        return None, url
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    names_others = parts.scheme.endswith(("+cluster", "+sentinel"))
    if names_others or parts.scheme == "rediss" or "ssl_ca" in options:
        return None, url
    if parts.scheme == "redis+unix":
        proxy, path = Proxy(unquote(parts.path)), f"/{options.pop('db', '0')}"
    elif "unix_socket" in options:
        proxy, path = Proxy(options.pop("unix_socket")), parts.path
    else:
        proxy, path = Proxy((parts.hostname or "localhost", parts.port or PORTS[engine_of(url)])), parts.path
    user, at, _ = parts.netloc.rpartition("@")
    scheme = parts.scheme.removesuffix("+unix")
    query = f"?{urlencode(options)}" if options else ""
    return proxy, f"{scheme}://{user}{at}{LOOPBACK}:{proxy.port}{path}{query}"


def _postgres(url: str) -> tuple[Proxy, str]:
    """Keep the host's name, so that certificates and password files still match."""
    from psycopg.conninfo import conninfo_to_dict

    settings = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    host, port = settings.get("host", "/tmp"), settings.get("port", str(PORTS["postgres"]))
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
