"""Runs the command line inside the test process, on a real store in a temporary directory."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

import penstock
from penstock.cli.program import app


class Cli:
    """Runs `penstock WORDS... --url THE-STORE` and checks the exit code."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store.db"
        self.url = f"sqlite:///{self.path}"
        self.runner = CliRunner()

    def __call__(self, *words: str, code: int = 0, input: str | bytes | None = None) -> Result:
        return self.bare(*words, "--url", self.url, code=code, input=input)

    def bare(self, *words: str, code: int = 0, input: str | bytes | None = None) -> Result:
        """Without --url."""
        with logs_as_they_were():
            result = self.runner.invoke(app, list(words), input=input)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, f"exit code {result.exit_code}: {result.stdout}{result.stderr}"
        return result

    def json(self, *words: str, input: str | bytes | None = None) -> Any:
        return json.loads(self(*words, "--json", input=input).stdout)

    def error(self, *words: str, code: int = 1, input: str | bytes | None = None) -> str:
        """The error of a failing run, which must be one line on stderr."""
        result = self(*words, code=code, input=input)
        assert result.stdout == ""
        lines = [line for line in result.stderr.splitlines() if not line.startswith("Help: ")]
        assert len(lines) == 1, result.stderr
        return lines[0]

    def send(self, queue: str, *words: str) -> str:
        return self("send", queue, *words).stdout.strip()

    def receive(self, queue: str, *words: str) -> tuple[str, str]:
        """The id and token of the received message."""
        (delivery,) = self.json("receive", queue, *words)
        return delivery["id"], str(delivery["token"])

    def store(self) -> penstock.Store:
        return penstock.connect(self.url)


@contextmanager
def logs_as_they_were() -> Iterator[None]:
    """The command configures the root logger; restore it for the other tests of this process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
