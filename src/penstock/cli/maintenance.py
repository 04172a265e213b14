"""sweep, migrate, doctor, repair, version"""

from __future__ import annotations

import platform
from enum import StrEnum
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from penstock.cli.format import escaped, fields_table, marked, sentence
from penstock.cli.session import CliSession
from penstock.client.connection import SCHEMES, redacted, schema_script
from penstock.domain.results import Check, Repair

MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "bold red")}


def sweep(session: CliSession) -> None:
    """Run one maintenance pass: reclaim, promote, expire, fire, trim.

    Example: penstock sweep
    """
    with session.store() as store:
        report = store.sweep()
    done = {name.replace("_", " "): count for name, count in msgspec.structs.asdict(report).items() if count}
    session.answer(report, fields_table(done) if done else Text("Nothing to do.", style="dim"))


def migrate(
    session: CliSession,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL for an empty database instead of running it.")
    ] = False,
) -> None:
    """Make the store's tables, or bring them to this version.

    Example: penstock migrate --url postgresql://app@localhost/app
    """
    if sql:
        typer.echo(schema_script(session.settings().url))
        return
    with session.store(create=True) as store:
        steps = store.migrate()
    url = redacted(session.settings().url)
    if steps:
        session.answer({"url": url, "steps": steps}, *(sentence("Done:", step) for step in steps))
    else:
        session.answer({"url": url, "steps": steps}, sentence(f"{url} is up to date."))


def doctor(session: CliSession) -> None:
    """Say what is wrong with the store; exits with 1 on an error.

    Example: penstock doctor
    """
    with session.store() as store:
        checks = store.doctor()
    session.answer(checks, marked(_check_line(check) for check in checks))
    if any(check.level == "error" for check in checks):
        raise typer.Exit(1)


class BatchChoice(StrEnum):
    START = "start"
    CANCEL = "cancel"


def repair(
    session: CliSession,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")] = False,
    batches: Annotated[
        BatchChoice | None, typer.Option(help="What becomes of batches that were opened by mistake and never started.")
    ] = None,
    terminate: Annotated[
        bool, typer.Option("--terminate", help="End sessions of the database that keep a lock by mistake.")
    ] = False,
) -> None:
    """Mend what earlier versions or faults left behind, and say what was done.

    Example: penstock repair --dry-run
    """
    with session.store() as store:
        found = store.repair(dry_run=dry_run, batches=batches and batches.value, terminate=terminate)
    session.answer(found, marked(_repair_line(one) for one in found) if found else sentence("Nothing to mend."))


def _repair_line(repair: Repair) -> tuple[Text, Text]:
    status = "Done" if repair.done else "To do"
    mark, style = MARKS["ok"] if repair.done else MARKS["warning"]
    line = Text.assemble(escaped(repair.name, style="bold"), escaped(f": {repair.finding}"))
    line.append("\n").append_text(escaped(f"{status}: {repair.action}", style="dim"))
    return Text(mark, style=style), line


def version(session: CliSession) -> None:
    """Print the version of Penstock.

    Example: penstock version
    """
    from penstock import __version__

    document = {"version": __version__, "python": platform.python_version(), "engines": list(SCHEMES)}
    session.answer(document, Text(f"penstock {__version__}"))


def _check_line(check: Check) -> tuple[Text, Text]:
    mark, style = MARKS.get(check.level, ("?", "yellow"))
    line = Text.assemble(escaped(check.name, style="bold"), escaped(f": {check.finding}"))
    if check.advice:
        line.append("\n").append_text(escaped(f"What to do: {check.advice}", style="dim"))
    return Text(mark, style=style), line
