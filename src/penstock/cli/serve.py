"""serve"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from penstock.cli.format import sentence
from penstock.cli.session import CliSession
from penstock.client.connection import redacted
from penstock.domain.errors import InvalidInput, MissingExtra
from penstock.settings import SERVERS, HttpSettings, RespSettings, example_file, load_server, server_fields

PANELS = {
    "resp": "Redis protocol: also PENSTOCK_RESP_…, and [resp] in the settings file",
    "http": "HTTP: also PENSTOCK_HTTP_…, and [http] in the settings file",
}
NEEDED = ("hiredis", "httptools", "jinja2", "prometheus_client", "starlette", "uvicorn")


def serve(session: CliSession, example_config: bool, hash_password: bool, make_token: bool, **flags: Any) -> None:
    """Serve the store to Redis clients, over HTTP and to browsers, and sweep it meanwhile.

    Example: penstock serve --url sqlite:///app.db --resp-port 4777 --http-port 4778
    """
    if example_config:
        typer.echo(example_file(), nl=False)
        return
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise MissingExtra(f"the server needs {', '.join(missing)}: pip install 'penstock-queue[server]'")
    if hash_password:
        _hash_password()
    elif make_token:
        _make_token()
    else:
        _serve(session, flags)


def _serve(session: CliSession, flags: dict[str, str | None]) -> None:
    from penstock.servers.service import Ports, ServerSettings, run

    def load() -> ServerSettings:
        return ServerSettings(
            load_server(RespSettings, _flags_of("resp", flags), session.config, os.environ),
            load_server(HttpSettings, _flags_of("http", flags), session.config, os.environ),
        )

    url = session.settings().url
    settings = load()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # The server logs its own start, stop and errors.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)

    def announce(ports: Ports) -> None:
        resp, http = settings
        redis = f"{'rediss' if resp.tls_certificate else 'redis'}://{resp.host}:{ports.resp}"
        document: dict[str, Any] = {"host": resp.host, "port": ports.resp, "url": redacted(url), "http": None}
        words = f"Serving {redacted(url)} on {redis}"
        if ports.http is not None:
            document["http"] = {"host": http.host, "port": ports.http}
            words += f" and {'https' if http.tls_certificate else 'http'}://{http.host}:{ports.http}"
        session.answer(document, sentence(words))

    run(url, settings, announce, load)


def _flags_of(server: str, flags: dict[str, str | None]) -> dict[str, str | None]:
    prefix = f"{server}_"
    return {name.removeprefix(prefix): value for name, value in flags.items() if name.startswith(prefix)}


def _make_token() -> None:
    from penstock.servers.access import hash_token, make_token

    token = make_token()
    typer.echo(f'token = "{token}"\ntoken_hash = "{hash_token(token)}"')
    typer.echo("The token is for the client, its hash for the settings file.", err=True)


def _hash_password() -> None:
    from penstock.servers.passwords import hash_password

    password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    if not password:
        raise InvalidInput("the password is empty")
    typer.echo(hash_password(password))


def _parameters() -> Iterator[inspect.Parameter]:
    yield inspect.Parameter("session", inspect.Parameter.POSITIONAL_ONLY, annotation=CliSession)
    for name, flags, about in (
        ("example_config", ["--example-config", "--example"], "Print a settings file with every setting, and stop."),
        ("hash_password", ["--hash-password"], "Ask for a password, print its hash for the settings file, and stop."),
        ("make_token", ["--make-token"], "Print a new token, and its hash for the settings file, and stop."),
    ):
        option = typer.Option(*flags, help=about)
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option])
    for server, kind in SERVERS.items():
        defaults = kind()
        for field, about in server_fields(server).items():
            default = getattr(defaults, field)
            text = f"{about[:1].upper()}{about[1:]}." + ("" if default is None else f" ({_shown(default)})")
            flag = f"--{server}-{field.replace('_', '-')}"
            option = typer.Option(flag, metavar="VALUE", help=text, rich_help_panel=PANELS[server])
            yield inspect.Parameter(
                f"{server}_{field}",
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[str | None, option],
            )


def _shown(default: object) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)


serve.__signature__ = inspect.Signature(list(_parameters()))  # type: ignore[attr-defined]  # functions may have one
