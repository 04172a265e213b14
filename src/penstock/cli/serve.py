"""serve"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from penstock.cli.rendering import sentence
from penstock.cli.session import Session
from penstock.client.connecting import redacted
from penstock.domain.errors import InvalidInput, MissingExtra
from penstock.settings import RespSettings, example_file, load_resp, resp_fields

PANEL = "The Redis-protocol server (also PENSTOCK_RESP_…, and [resp] in the settings file)"
PREFIX = "resp_"


def serve(session: Session, example_config: bool, hash_password: bool, **flags: Any) -> None:
    """Serve the store to Redis clients, and sweep it meanwhile.

    Example: penstock serve --url sqlite:///app.db --resp-port 4777
    """
    if example_config:
        typer.echo(example_file(), nl=False)
        return
    if find_spec("hiredis") is None:
        raise MissingExtra("the server needs hiredis: pip install 'penstock[server]'")
    if hash_password:
        _hash_password()
        return
    _serve(session, {name.removeprefix(PREFIX): value for name, value in flags.items()})


def _serve(session: Session, flags: dict[str, str | None]) -> None:
    from penstock.servers.running import run

    def load() -> RespSettings:
        return load_resp(flags, session.config, os.environ)

    url = session.settings().url
    settings = load()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")

    def tell(port: int) -> None:
        document = {"host": settings.host, "port": port, "url": redacted(url)}
        protocol = "rediss" if settings.tls_certificate else "redis"
        session.answer(document, sentence(f"Serving {redacted(url)} on {protocol}://{settings.host}:{port}"))

    run(url, settings, tell, load)


def _hash_password() -> None:
    from penstock.servers.access import hash_password

    password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    if not password:
        raise InvalidInput("the password is empty")
    typer.echo(hash_password(password))


def _parameters() -> Iterator[inspect.Parameter]:
    yield inspect.Parameter("session", inspect.Parameter.POSITIONAL_ONLY, annotation=Session)
    for name, about in (
        ("example_config", "Print a settings file with every setting, and stop."),
        ("hash_password", "Ask for a password, print its hash for the settings file, and stop."),
    ):
        option = typer.Option(f"--{name.replace('_', '-')}", help=about)
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option])
    defaults = RespSettings()
    for field, about in resp_fields().items():
        default = getattr(defaults, field)
        told = f"{about[:1].upper()}{about[1:]}." + ("" if default is None else f" ({default})")
        option = typer.Option(f"--resp-{field.replace('_', '-')}", metavar="VALUE", help=told, rich_help_panel=PANEL)
        yield inspect.Parameter(
            f"{PREFIX}{field}", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, option]
        )


serve.__signature__ = inspect.Signature(list(_parameters()))  # type: ignore[attr-defined]  # functions may have one
