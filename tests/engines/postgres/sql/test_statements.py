"""Dynamic SQL in the functions: names go in as %I, values as %L, and nothing is glued together."""

from __future__ import annotations

import re

from tests.architecture.sources import ROOT

FUNCTIONS = ROOT / "src" / "penstock" / "engines" / "postgres"
EXECUTED = re.compile(r"\bexecute\s+(?!function|on\b)(\S[^;]*?);", re.IGNORECASE)
# Text that is no name and no value of anybody: what it is.
NUMBERS = {
    "grant execute on routine %s to %I": "regprocedure, which PostgreSQL writes with quotes where it needs them",
    "for values in (%s) with (autovacuum_enabled = false)": "the number of a segment",
    "create or replace view %s as select %s where false": "regclass, and its columns, whose names were quoted",
    "drop function if exists %s": "regprocedure",
    "drop routine if exists %s": "regprocedure",
    "create or replace procedure %1$I.%2$I(%3$s) '": "the parameters of a procedure, from penstock.compat_procedure",
    "alter table %s rename to %I": "regclass",
    "alter type %s rename attribute %I to %I": "regclass",
    "alter table %s rename column %I to %I": "regclass",
    "alter index %s rename to %I": "regclass",
    "grant %s on %s to %s %s": "a right as the catalogs have it, with names that were quoted",
    "from (%s) as m": "the statement of a window, which the store made of numbers and quoted marks",
}


def executed() -> list[tuple[str, str]]:
    found = []
    for path in sorted(FUNCTIONS.rglob("*.sql")):
        text = re.sub(r"^\s*--.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        text = re.sub(r"\$text\$.*?\$text\$", lambda match: _placeholders(match.group(0)), text, flags=re.DOTALL)
        found += [(path.name, statement) for statement in EXECUTED.findall(text)]
    return found


def _placeholders(template: str) -> str:
    return "'" + " ".join(re.findall(r"%(?:\d\$)?.", template)) + "'"


def test_dynamic_statements_are_made_by_format_with_quoting() -> None:
    statements = executed()
    assert len(statements) > 10, "the statements were not found"
    for name, statement in statements:
        assert statement.startswith("format("), f"{name}: {statement}"
        known = next((text for text in NUMBERS if text in statement), "")
        rest = statement.replace(known, "") if known else statement
        assert not re.search(r"%(?:\d\$)?s", rest), f"{name} puts text into a statement unquoted: {statement}"
