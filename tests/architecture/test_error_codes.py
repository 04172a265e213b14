"""Error codes of each interface against the one tree of errors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from penstock.domain import errors
from penstock.engines.postgres.errors import DUPLICATE_ADDRESS, RAISED
from tests.architecture.sources import ROOT, sql_files

# The first digit of a code names the branch of the tree.
FAMILIES = {"1": errors.InvalidInput, "2": errors.Refused, "3": errors.NotFound, "4": errors.StoreError}
CODES = {**RAISED, DUPLICATE_ADDRESS: errors.DuplicateAddress}


def test_every_code_that_the_functions_raise_is_an_error_of_the_tree() -> None:
    raised = {
        code
        for path in sql_files()
        if "functions" in path.parts
        for code in re.findall(r"raise exception using\s+errcode = '(PN\d+)'", path.read_text(encoding="utf-8"))
    }
    assert raised == set(CODES)


def test_a_code_begins_with_the_number_of_its_branch() -> None:
    for code, error in CODES.items():
        assert issubclass(error, FAMILIES[code[2]]), code
        assert getattr(errors, error.__name__) is error


def test_the_sql_reference_lists_every_code_with_its_error() -> None:
    page = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `(PN\d+)` \| `(\w+)` \|", page, re.MULTILINE))
    assert listed == {code: error.__name__ for code, error in CODES.items()}


# Errors of the positional engines that PostgreSQL words otherwise, or composes from parts.
OTHER_WORDS = {
    "of queue %s between %s and %s were removed while": "PostgreSQL reads a window in one snapshot",
    "of queue %s was cancelled and takes no more": "composed in SQL",
    "and takes no more messages: open a new one": "composed in SQL",
    "follows the trail: it has no place in the log": "snapshots fit the log and the trail",
    "was not deleted: schedule": "composed in SQL",
    "was not deleted: consumer": "composed in SQL",
    "it never had, or it is past retention": "SQL quotes the id with %L",
    "is not a mark of this store": "marks have another form",
    "end at %s, before the mark": "marks have another form",
    "is behind a row of the": "marks have another form",
    "never had a message with address": "raised by the client",
    "has no size: limit it by rows": "raised in Python by both engines",
    "to %s of the %s of queue %s are past retention": "marks have another form",
}


def test_engines_refuse_a_call_with_the_same_sentence() -> None:
    """Error texts of the positional engines are also in PostgreSQL's functions, or listed as exceptions."""
    functions = "\n".join(path.read_text(encoding="utf-8") for path in sql_files() if "functions" in path.parts)
    functions = re.sub(r"'\s*\n\s*'", "", functions).replace("''", "'")
    package = ROOT / "src" / "penstock"
    texts = [*_raised(package / "engines" / "positional"), *_raised(package / "domain", "refusals.py")]
    assert len(texts) > 20
    for text in texts:
        is_other = any(part in text for part in OTHER_WORDS)
        assert (text in functions) is not is_other, text
    assert all(any(part in text for text in texts) for part in OTHER_WORDS), "an exception is not needed any more"


def _raised(folder: Path, files: str = "*.py") -> Iterator[str]:
    """The texts of raised or returned errors with %s for each value, without a suggestion at the end."""
    for path in sorted(folder.rglob(files)):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            call = node.exc if isinstance(node, ast.Raise) else node.value if isinstance(node, ast.Return) else None
            if isinstance(call, ast.Call) and call.args and getattr(call.func, "id", "") in vars(errors):
                text = _text(call.args[0])
                if text is not None:
                    yield re.sub("%s(%s)+$", "%s", text)


def _text(node: ast.expr) -> str | None:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "%s" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
