"""Names of queues for the completion of shells, which runs the program once for every press of the key."""

from __future__ import annotations

import shlex

import typer

from penstock.cli.command import session_of
from penstock.domain.errors import PenstockError


def complete_queue(ctx: typer.Context, incomplete: str) -> list[str]:
    """Queues of the store that the line or the settings name. Nothing is made, and what is wrong offers nothing: the
    command itself reports it. Names that a shell would have to quote are left out."""
    try:
        with session_of(ctx).store() as store:
            names = [info.name for info in store.queues()]
    except PenstockError:
        return []
    return [name for name in names if name.startswith(incomplete) and shlex.quote(name) == name]
