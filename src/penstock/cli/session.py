"""One run of a command: its store, and its output as text or JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import typer
from rich.console import Console, RenderableType

from penstock import settings
from penstock.cli.format import escaped
from penstock.client.connection import absent_store, connect, redacted
from penstock.client.queue import Queue
from penstock.client.store import Store
from penstock.domain.errors import NotFound, PenstockError, Refused
from penstock.domain.validation import check_name, nearest, shown

# Into a pipe nothing is folded or cut: there is no screen whose width would matter, and `grep` wants whole rows.
PIPE_WIDTH = 4096


class Session:
    def __init__(
        self,
        url: str | None = None,
        config: str | None = None,
        as_json: bool = False,
        given: frozenset[str] = frozenset(),
    ) -> None:
        self.url = url
        self.config = config
        self.as_json = as_json
        # Parameters of the command that stand on the command line: the others have their defaults.
        self.given = given
        self.console = console()

    # -- the store -------------------------------------------------------------------------------------------------

    @contextmanager
    def store(self, *, create: bool = False) -> Iterator[Store]:
        """The store of this run, open. Only commands that put something in may make a new one."""
        chosen = self.settings()
        if not create:
            check_exists(chosen)
        with connect(chosen.url) as store:
            yield store

    def settings(self) -> settings.Settings:
        return settings.load(self.url, self.config, os.environ)

    # -- answers ---------------------------------------------------------------------------------------------------

    def answer(self, document: Any, *people: RenderableType) -> None:
        """The result: one JSON document for programs, something to look at for people."""
        if self.as_json:
            self._write(document)
        else:
            self.console.print(*people, sep="\n")

    def hint(self, sentence: str) -> None:
        """What to do next, for a person at a terminal only."""
        if sys.stderr.isatty() and not self.as_json:
            console(stderr=True).print(escaped(sentence), style="dim", soft_wrap=True)

    def fail(self, error: Exception, kind: str | None = None) -> None:
        """Say what went wrong, in one line on the error stream."""
        message = self._without_password(str(error))
        if self.as_json:
            document = {"error": kind or type(error).__name__, "message": message}
            typer.echo(msgspec.json.encode(document), err=True)
        else:
            console(stderr=True).print(escaped(f"Error: {message}"), style="bold red", soft_wrap=True)

    @property
    def is_interactive(self) -> bool:
        """Whether a person can be asked."""
        return sys.stdin.isatty()

    def confirm(self, question: str) -> bool:
        """A person's yes; without a person there is none."""
        if not self.is_interactive:
            return False
        return typer.confirm(str(escaped(question)), err=True)

    def _write(self, document: Any) -> None:
        encoded = msgspec.json.encode(document)
        if sys.stdout.isatty():
            encoded = msgspec.json.format(encoded, indent=2)
        typer.echo(encoded)

    def _without_password(self, message: str) -> str:
        """Errors quote the URL they were given; its password is nobody else's business."""
        try:
            return redacted(self.settings().url, message)
        except PenstockError:  # the settings are what is wrong
            return message


def console(stderr: bool = False) -> Console:
    """A console that takes every text as it is: no markup, no emoji codes, no guessed highlights."""
    made = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = PIPE_WIDTH
    return made


def check_exists(chosen: settings.Settings) -> None:
    """Opening a SQLite store creates its file and tables; a command that only reads must create neither."""
    if (absent := absent_store(chosen.url)) is not None:
        where = f"{redacted(chosen.url)} (from {chosen.url_source})"
        raise NotFound(f"{absent} at {where}: the first `penstock send` makes one, or name another with --url")


def known_queue(store: Store, name: str) -> Queue:
    """The queue, which must exist: a mistyped name must not look like an empty queue."""
    check_name("queue", name)
    names = [info.name for info in store.queues()]
    if name not in names:
        raise NotFound(f"there is no queue {shown(name)}{nearest(name, names)}")
    return store.queue(name)


def known_group(queue: Queue, name: str | None) -> str:
    """The group, which must exist; None is the primary one."""
    return queue._known_group(name)


def confirmed(session: Session, yes: bool, question: str) -> None:
    """Go on only with a yes: what follows cannot be undone."""
    if not yes and not session.confirm(question):
        raise Refused("nothing was removed: say --yes to remove without being asked")
