"""The `penstock` program: the table of commands, and the output of usage errors."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from penstock.cli import (
    batches,
    bench,
    chaos,
    consumers,
    dead_letters,
    deliveries,
    maintenance,
    messages,
    pipeline,
    queues,
    schedules,
    serve,
    worker,
)
from penstock.cli.command import Config, Json, Url, command, session_of
from penstock.cli.demo.command import demo
from penstock.cli.help import PlainCommand, PlainGroup
from penstock.cli.session import CliSession

PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Messages": (
        messages.send,
        deliveries.receive,
        deliveries.ack,
        deliveries.nak,
        deliveries.reject,
        deliveries.reschedule,
        deliveries.extend,
    ),
    "Looking": (
        queues.status,
        queues.info,
        messages.peek,
        messages.messages,
        messages.audit,
        messages.explain,
        consumers.leases,
        consumers.consumers,
    ),
    "Dead letters": (dead_letters.dead, dead_letters.redrive, dead_letters.purge),
    "Queues": (queues.pause, queues.resume, queues.seek, queues.flush),
    "The store": (
        worker.worker,
        serve.serve,
        maintenance.sweep,
        maintenance.migrate,
        maintenance.doctor,
        maintenance.repair,
        bench.bench,
        chaos.chaos,
        demo,
        maintenance.version,
    ),
}
FAMILIES: dict[str, tuple[str, str, dict[str, Callable[..., None]]]] = {
    "queues": (
        "Queues",
        "List queues, show or set their policy, and delete them.",
        {"list": queues.list_queues, "declare": queues.declare, "policy": queues.policy, "delete": queues.delete},
    ),
    "batch": (
        "Queues",
        "Hold messages back, start them together, and send an end message when all are finished.",
        {
            "list": batches.list_batches,
            "show": batches.show,
            "members": messages.members,
            "open": batches.open_batch,
            "set-end": batches.set_end,
            "set-abort": batches.set_abort,
            "start": batches.start,
            "cancel": batches.cancel,
        },
    ),
    "schedule": (
        "Queues",
        "Send messages by cron rules.",
        {
            "list": schedules.list_schedules,
            "add": schedules.add,
            "edit": schedules.edit,
            "run": schedules.run,
            "pause": schedules.pause,
            "resume": schedules.resume,
            "remove": schedules.remove,
        },
    ),
    "pipeline": (
        "The store",
        "Jobs on Spark, here or on a cluster.",
        {
            "run": pipeline.run,
            "archive": pipeline.archive,
            "verify": pipeline.verify,
            "report": pipeline.report,
            "status": pipeline.status,
            "process": pipeline.process,
            "replay": pipeline.replay,
        },
    ),
}
# Families whose name without a command runs `list`.
LISTING = ("queues", "schedule")
# The error for invalid options, arguments and commands. Typer exports only its subclass.
USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]


class Program(PlainGroup):
    """Prints usage errors like all others: in one line, or as JSON."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        words = sys.argv[1:] if args is None else list(args)
        try:
            code = super().main(words, "penstock", complete_var, False, windows_expand_args, **extra)
        except USAGE_ERROR as error:
            _print_usage_error(error, as_json="--json" in words)
            code = 2
        except typer.Abort:
            typer.echo("Aborted.", err=True)
            code = 1
        sys.exit(code if isinstance(code, int) else 0)


def make_app() -> typer.Typer:
    app = typer.Typer(
        cls=Program,
        no_args_is_help=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback(invoke_without_command=True)(start)
    for panel, commands in PANELS.items():
        for run in commands:
            app.command(cls=PlainCommand, rich_help_panel=panel)(command(run))
        for name, (family_panel, about, members) in FAMILIES.items():
            if family_panel == panel:
                app.add_typer(_family(name, members), name=name, help=about, rich_help_panel=panel)
    return app


def start(
    ctx: typer.Context,
    url: Url = None,
    config: Config = None,
    as_json: Json = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """A message queue in the database you already have.

    Example: penstock send orders '{"order": 1}' && penstock receive orders
    """
    if ctx.invoked_subcommand is None:
        if version:
            maintenance.version(session_of(ctx))
        else:
            _show_help(ctx)


def _show_help(ctx: typer.Context) -> None:
    help_text = ctx.get_help()
    if help_text:  # empty when rich has printed it already
        typer.echo(help_text)


def _family(name: str, members: dict[str, Callable[..., None]]) -> typer.Typer:
    family = typer.Typer(cls=PlainGroup)
    family.callback(invoke_without_command=True)(_bare(members["list"] if name in LISTING else None))
    for word, run in members.items():
        family.command(word, cls=PlainCommand)(command(run))
    return family


def _bare(listing: Callable[..., None] | None) -> Callable[..., None]:
    """The family without a command: runs its list, or shows its help."""
    run = None if listing is None else command(listing)

    def bare(ctx: typer.Context, url: Url = None, config: Config = None, as_json: Json = False) -> None:
        if ctx.invoked_subcommand is not None:
            return
        if run is None:
            _show_help(ctx)
        else:
            run(ctx=ctx, url=url, config=config, as_json=as_json)

    return bare


def _print_usage_error(error: Exception, as_json: bool) -> None:
    session = CliSession(as_json=as_json)
    context = getattr(error, "ctx", None)
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    session.fail(ValueError(message.rstrip(".") if message.endswith(".") else message), kind="UsageError")
    if context is not None and not as_json:
        typer.echo(f"Help: {context.command_path} --help", err=True)


app = make_app()


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # Print the escape sequence of a character that the terminal cannot encode, instead of failing.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()
