"""The run of one command: its settings, its store, and its output as text or JSON."""

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
from penstock.domain.refusals import no_queue
from penstock.domain.validation import check_name

# Output into a pipe is neither wrapped nor cut: `grep` needs whole rows.
PIPE_WIDTH = 4096


class CliSession:
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
        # Names of the parameters that were given on the command line; the others have their defaults.
        self.given = given
        self.console = console()

    # -- the store -------------------------------------------------------------------------------------------------

    @contextmanager
    def store(self, *, create: bool = False) -> Iterator[Store]:
        """Open the store. Only commands that send or declare something may create one."""
        chosen = self.settings()
        if not create:
            check_exists(chosen)
        with connect(chosen.url) as store:
            yield store

    @contextmanager
    def queue(self, name: str) -> Iterator[Queue]:
        """Open the store and get a queue, which must exist."""
        with self.store() as store:
            yield known_queue(store, name)

    def settings(self) -> settings.Settings:
        return settings.load(self.url, self.config, os.environ)

    # -- output ----------------------------------------------------------------------------------------------------

    def answer(self, document: Any, *people: RenderableType) -> None:
        """Print the result: `document` with --json, else what is for people."""
        if self.as_json:
            self._write(document)
        else:
            self.console.print(*people, sep="\n")

    def hint(self, sentence: str) -> None:
        """Print the next step to stderr, at a terminal only."""
        if sys.stderr.isatty() and not self.as_json:
            console(stderr=True).print(escaped(sentence), style="dim", soft_wrap=True)

    def fail(self, error: Exception, kind: str | None = None) -> None:
        """Print an error to stderr, in one line."""
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
        """Ask for a yes; without a terminal the answer is no."""
        if not self.is_interactive:
            return False
        return typer.confirm(str(escaped(question)), err=True)

    def _write(self, document: Any) -> None:
        encoded = msgspec.json.encode(document)
        if sys.stdout.isatty():
            encoded = msgspec.json.format(encoded, indent=2)
        typer.echo(encoded)

    def _without_password(self, message: str) -> str:
        """Remove the password of the store's URL, which errors may quote."""
        try:
            return redacted(self.settings().url, message)
        except PenstockError:  # the error is about the settings
            return message


def console(stderr: bool = False) -> Console:
    """A console that prints text literally: no markup, no emoji codes, no highlighting."""
    made = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = PIPE_WIDTH
    return made


def check_exists(chosen: settings.Settings) -> None:
    """Raise NotFound if opening would create the store: commands that only read must not create one."""
    if (absent := absent_store(chosen.url)) is not None:
        where = f"{redacted(chosen.url)} (from {chosen.url_source})"
        raise NotFound(f"{absent} at {where}: the first `penstock send` makes one, or name another with --url")


def known_queue(store: Store, name: str) -> Queue:
    """Get a queue that exists: a mistyped name must not look like an empty queue."""
    check_name("queue", name)
    names = [info.name for info in store.queues()]
    if name not in names:
        raise no_queue(name, names)
    return store.queue(name)


def known_group(queue: Queue, name: str | None) -> str:
    """Check that a group exists; None stands for the primary group."""
    return queue.existing_group(name)


def confirmed(session: CliSession, yes: bool, question: str) -> None:
    """Ask before something that cannot be undone; raise Refused without a yes."""
    if not yes and not session.confirm(question):
        raise Refused("nothing was removed: say --yes to remove without being asked")
