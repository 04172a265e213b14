"""SQL lives in `.sql` files: blocks that begin with `-- name: receive`, then a sentence on what the statement does.

Before the first block may stand statements that only call a function of the database: they have its name.

statements = Statements("penstock.engines.postgres", "sql/queue.sql")
connection.execute(statements.receive, …)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType

_BLOCK = re.compile(r"^-- name: (\w+)\n((?:--[^\n]*\n)+)(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)

_CALL = re.compile(r"^(select (?:\* from )?\w+\.(\w+)\([^;]*\));$", re.MULTILINE)


class Statements:
    """The named statements of one file, or of all files in a folder, as attributes; before them, those of `shared`."""

    def __init__(self, package: str, path: str, shared: Mapping[str, str] = MappingProxyType({})) -> None:
        place = files(package).joinpath(path)
        found = [place] if place.is_file() else [one for one in place.iterdir() if one.name.endswith(".sql")]
        texts = [one.read_text(encoding="utf-8") for one in found]
        named = [(name, body.strip().rstrip(";")) for text in texts for name, _, body in _BLOCK.findall(text)]
        calls = [(name, body) for text in texts for body, name in _CALL.findall(text.partition("-- name:")[0])]
        own = dict(named + calls)
        self.blocks = {**shared, **own}
        self.__dict__.update(self.blocks)
        if sum(text.count("-- name:") for text in texts) != len(own) - len(calls):
            raise ValueError(f"{path}: a name is used twice, or a block has no description or no statement")

    def __getattr__(self, name: str) -> str:
        """Called only for names that are missing; it also tells type checkers that the others are strings."""
        raise AttributeError(f"no statement named {name!r}")
