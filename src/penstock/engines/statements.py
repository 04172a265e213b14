"""SQL lives in `.sql` files: blocks that begin with `-- name: receive`, then a sentence on what the statement does.

statements = Statements("penstock.engines.sqlite", "sql/send.sql")
connection.execute(statements.append_message, …)
"""

from __future__ import annotations

import re
from importlib.resources import files

_BLOCK = re.compile(r"^-- name: (\w+)\n((?:--[^\n]*\n)+)(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)


class Statements:
    """The named statements of one file, as attributes."""

    def __init__(self, package: str, path: str) -> None:
        text = files(package).joinpath(path).read_text(encoding="utf-8")
        self.blocks = {name: body.strip().rstrip(";") for name, _, body in _BLOCK.findall(text)}
        self.__dict__.update(self.blocks)
        if text.count("-- name:") != len(self.blocks):
            raise ValueError(f"{path}: a named block without a description or without a statement")

    def __getattr__(self, name: str) -> str:
        """Only asked for what is not there; it also tells type checkers that the rest are strings."""
        raise AttributeError(f"no statement named {name!r}")
