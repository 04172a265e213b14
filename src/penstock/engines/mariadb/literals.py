"""Statements with their values, as text that needs no quoting rules.

Drivers for MariaDB write values into the statement on the client. Here every text that is more than a plain word, and
every payload, becomes a hexadecimal literal: the statement is ASCII, means the same in every `sql_mode` and character
set, and is the same for every driver."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from penstock.engines.positional.database import Bindings

_MARKER = re.compile(r"('[^']*')|\?(\d*)|:([a-z_]\w*)")
_PLAIN = re.compile(r"[A-Za-z0-9_./ -]*")
_LOCK = re.compile(r"\s+for update\b")
_READS = ("select", "(", "do ", "with", "set @", "set session ")


class Fragment:
    """A piece of SQL in place of a value."""

    def __init__(self, text: str) -> None:
        self.text = text


def literal(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, str):
        return f"'{value}'" if _PLAIN.fullmatch(value) else f"_utf8mb4 x'{value.encode().hex()}'"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Fragment):
        return value.text
    if isinstance(value, list):
        return ", ".join(map(literal, value))
    return f"x'{bytes(value).hex()}'"


class Template:
    """One statement, cut at its markers: `?`, `?1` and `:name`."""

    def __init__(self, text: str) -> None:
        self.pieces: list[str] = []
        self.keys: list[int | str] = []
        start = 0
        for found in _MARKER.finditer(text):
            quoted, number, name = found.groups()
            if quoted is not None:
                continue
            self.pieces.append(text[start : found.start()])
            self.keys.append(name or (int(number) - 1 if number else len(self.keys)))
            start = found.end()
        self.pieces.append(text[start:])

    def render(self, bindings: Bindings) -> str:
        if not self.keys:
            return self.pieces[0]
        values: Any = bindings
        parts = [self.pieces[0]]
        for key, piece in zip(self.keys, self.pieces[1:], strict=True):
            parts.append(literal(values[key]))
            parts.append(piece)
        return "".join(parts)


class PreparedBlock:
    """A compound statement that a connection parses once; its values are variables of the connection."""

    def __init__(self, name: str, text: str, then: str = "") -> None:
        self.name = name
        self.then = then
        self.keys = sorted({str(key) for key in Template(text).keys})
        variables = {key: Fragment(f"@penstock_{key}") for key in self.keys}
        self.preparation = f"prepare {name} from {literal(Template(text).render(variables))}"

    def render(self, bindings: dict[str, Any]) -> str:
        values = ", ".join([f"@penstock_{key} = {literal(bindings[key])}" for key in self.keys])
        return f"set {values};\nexecute {self.name}{self.then}"


class Block:
    """A named block: one statement or several, of which the last one with a result gives the result."""

    def __init__(self, text: str, locks: bool, first: str | None = None) -> None:
        text = text if locks else _LOCK.sub("", text)
        statements = [statement.strip() for statement in text.split(";\n")]
        self.templates = [Template(statement) for statement in ([] if first is None else [first]) + statements]
        self.writes = not all(statement.startswith(_READS) for statement in statements)

    def render(self, bindings: Bindings) -> list[str]:
        return [template.render(bindings) for template in self.templates]

    def render_rows(self, rows: Sequence[tuple[Any, ...]], most: int) -> list[str]:
        """An insert of many rows, cut into statements of about `most` characters."""
        head, tail = self.templates[0].pieces[0], self.templates[0].pieces[-1]
        statements: list[str] = []
        texts: list[str] = []
        size = 0
        for row in rows:
            text = ", ".join(map(literal, row))
            texts.append(text)
            size += len(text)
            if size > most:
                statements.append(f"{head}{'), ('.join(texts)}{tail}")
                texts, size = [], 0
        if texts:
            statements.append(f"{head}{'), ('.join(texts)}{tail}")
        return statements

    @property
    def takes_rows(self) -> bool:
        """Whether rows of bindings can be one statement: an insert of values that are all bound in their order."""
        template = self.templates[0]
        is_insert = template.pieces[0].startswith("insert into") and template.pieces[0].endswith("values (")
        is_list = all(piece == ", " for piece in template.pieces[1:-1]) and template.pieces[-1].startswith(")")
        return len(self.templates) == 1 and is_insert and is_list
