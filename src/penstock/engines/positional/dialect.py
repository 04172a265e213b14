"""The statements that engines share, in the words of each database (docs/decisions/0355).

They are written once, in `statements/` of this package, and say what no two databases spell alike in one way:

- `"key"`: a name that is a reserved word somewhere;
- `greatest(a, b)`, `least(a, b)` of two values, `iif(condition, a, b)`, `a div b` of integers, `json_extract(a, path)`;
- `insert or ignore`, `insert or replace`, `on conflict (…) do update set a = excluded.a`;
- `in (:values)`: a list of any length;
- `for update`: the rows stay locked until the transaction ends;
- `cross join`: read the left table first;
- `/*! … */`: what only MariaDB and MySQL read, such as the index to use.

An engine has a rule for each of these that its database spells otherwise. Rules replace words, as they know no grammar:
a statement that differs in more is written twice, in the folders of the engines. Assignments of an `update` are in an
order in which it does not matter whether they see those before them (they do on MariaDB)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock.engines.statements import Statements

# A pattern and its replacement.
Rule = tuple[str, str]
_END = "\0"


def engine_statements(package: str, rules: Sequence[Rule]) -> Statements:
    """The shared statements in an engine's dialect, and the engine's own; its own take the place of shared ones."""
    return Statements(package, "statements", in_dialect(rules))


def in_dialect(rules: Sequence[Rule]) -> dict[str, str]:
    """The shared statements."""
    shared = Statements("penstock.engines.positional", "statements").blocks
    return dict(zip(shared, render(_END.join(shared.values()), rules).split(_END), strict=True))


def render(text: str, rules: Sequence[Rule]) -> str:
    """The text after each of the rules, in their order."""
    for pattern, replacement in rules:
        text = re.sub(pattern, replacement, text)
    return text
