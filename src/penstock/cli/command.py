"""Run a command with a session, and print Penstock's errors in one line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from penstock.cli.session import CliSession
from penstock.domain.errors import PenstockError

PANEL = "Every command"

Url = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="The store, such as sqlite:///app.db; else PENSTOCK_URL.", rich_help_panel=PANEL
    ),
]
Config = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="A TOML settings file; else PENSTOCK_CONFIG.", rich_help_panel=PANEL),
]
Json = Annotated[bool, typer.Option("--json", help="Answer with one JSON document.", rich_help_panel=PANEL)]

SHARED = (
    inspect.Parameter("url", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Url),
    inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Config),
    inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json),
)
CONTEXT = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)


def command(run: Callable[..., None]) -> Callable[..., None]:
    """Wrap a function for typer: --url, --config and --json replace its parameter `session`."""

    def invoke(ctx: typer.Context, **values: Any) -> None:
        session = session_of(ctx)
        for shared in SHARED:
            values.pop(shared.name)
        try:
            run(session, **values)
        except PenstockError as error:
            session.fail(error)
            raise typer.Exit(1) from None

    own = list(inspect.signature(run, eval_str=True).parameters.values())[1:]
    parameters = [CONTEXT, *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own), *SHARED]
    invoke.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # functions may have one
    invoke.__name__ = run.__name__
    invoke.__doc__ = run.__doc__
    return invoke


def session_of(ctx: typer.Context) -> CliSession:
    """Make the session from the options of the command and its parents: `penstock --json status` is
    `penstock status --json`."""
    chain = _chain(ctx)
    return CliSession(
        url=next((values["url"] for values in chain if values.get("url") is not None), None),
        config=next((values["config"] for values in chain if values.get("config") is not None), None),
        as_json=any(values.get("as_json") for values in chain),
        given=frozenset(name for name in ctx.params if _is_given(ctx, name)),
    )


def _is_given(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _chain(ctx: typer.Context) -> list[dict[str, Any]]:
    """The parameters of the command and its parents, innermost first."""
    chain = [ctx.params]
    parent = ctx.parent
    while parent is not None:
        chain.append(parent.params)
        parent = parent.parent
    return chain
