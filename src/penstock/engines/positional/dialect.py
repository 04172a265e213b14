"""The statements that engines share, in the words of each database."""

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
