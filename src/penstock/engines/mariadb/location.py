"""The URL of a store: `mysql://user:password@host:3306/database?unix_socket=/run/mysqld/mysqld.sock&ssl_ca=ca.pem`."""

from __future__ import annotations

import os
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from penstock.domain.errors import InvalidUrl
from penstock.domain.validation import nearest, shown

PORT = 3306
PARAMETERS = ("unix_socket", "ssl_ca", "ssl_cert", "ssl_key", "ssl_verify", "connect_timeout")
FILES = ("ssl_ca", "ssl_cert", "ssl_key")
EXAMPLE = "mysql://user:password@host/database"


class ServerLocation(NamedTuple):
    """Where a store is. Several hosts are the nodes of one cluster."""

    hosts: tuple[tuple[str, int], ...]
    user: str
    password: str
    database: str
    parameters: dict[str, str]

    @property
    def name(self) -> str:
        """The store in error messages, without the password."""
        where = self.parameters.get("unix_socket") or ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"database {shown(self.database)} at {where}"

    def arguments(self, host: str, port: int) -> dict[str, Any]:
        """Keyword arguments of the driver."""
        given = self.parameters
        arguments: dict[str, Any] = {
            "user": self.user,
            "password": self.password,
            "database": self.database,
            "connect_timeout": int(given.get("connect_timeout", "10")),
        }
        if "unix_socket" in given:
            arguments["unix_socket"] = given["unix_socket"]
        else:
            arguments.update(host=host, port=port)
        for name in FILES:
            if name in given:
                arguments[name] = given[name]
        if given.get("ssl_verify") in ("1", "true"):
            arguments.update(ssl_verify_cert=True, ssl_verify_identity=True)
        return arguments


def parse(url: str) -> ServerLocation:
    """Parse a URL. Several hosts are separated by commas. Errors do not quote the URL, which may hold a password."""
    try:
        parts = urlsplit(url)
        parameters = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise InvalidUrl(f"not the URL of a MariaDB or MySQL store ({error}): use one such as {EXAMPLE}") from None
    for name in parameters:
        if name not in PARAMETERS:
            known = ", ".join(PARAMETERS)
            raise InvalidUrl(f"unknown URL parameter {shown(name)}: this store has {known}{nearest(name, PARAMETERS)}")
    if not parameters.get("connect_timeout", "10").isdecimal():
        raise InvalidUrl(f"connect_timeout is a number of seconds, not {shown(parameters['connect_timeout'])}")
    for name in FILES:
        if name in parameters and not os.access(parameters[name], os.R_OK):
            raise InvalidUrl(f"{name} names no file that can be read: {shown(parameters[name])}")
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database:
        raise InvalidUrl(f"the URL names no database: use one such as {EXAMPLE}")
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    nodes = tuple(_node(host) for host in (hosts or "localhost").split(","))
    return ServerLocation(nodes, unquote(user), unquote(password), database, parameters)


def _node(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not host:
        host, port = port, ""
    if port and not (port.isdecimal() and 0 < int(port) < 65536):
        raise InvalidUrl(f"{shown(port)} is not a port: use one such as {EXAMPLE.replace('host', 'host:3306')}")
    return host.strip("[]") or "localhost", int(port or PORT)
