"""Shell completion of queue names. The shell runs the program at every press of the key."""

from __future__ import annotations

import shlex

import typer

from penstock.cli.command import session_of
from penstock.domain.errors import PenstockError


def complete_queue(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete with the queues of the store that the command line or the settings name. Creates no store, and hides
    errors, which the command itself reports. Names that a shell would have to quote are left out."""
    try:
        with session_of(ctx).store() as store:
            names = [info.name for info in store.queues()]
    except PenstockError:
        return []
    return [name for name in names if name.startswith(incomplete) and shlex.quote(name) == name]
