"""Names, sizes and forbidden constructs of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.sources import PACKAGE, ROOT, python_files, shown, sql_files, tree

MAX_LINES = 500
MAX_ENGINE_LINES = 2500
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "core", "misc"}
CODE = ("src", "tests", "bench", "scripts", "examples")
# Words that Penstock replaced with better ones (docs/glossary.md); `push` and `pop` of lists are not ours.
RETIRED = {"vt", "qty", "rsh", "enqueue", "dequeue", "enqueued", "dequeued", "qadd", "qget", "visibility", "permit"}
DANGEROUS_CALLS = {"eval", "exec", "compile", "__import__"}
DANGEROUS_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml"}


def test_no_file_has_an_empty_name() -> None:
    files = [*python_files(*CODE), *sql_files()]
    wrong = [shown(path) for path in files if {path.stem, *path.relative_to(ROOT).parent.parts} & EMPTY_NAMES]
    assert not wrong


def test_no_file_is_too_long() -> None:
    lengths = {
        shown(path): path.read_text(encoding="utf-8").count("\n") for path in [*python_files(*CODE), *sql_files()]
    }
    assert lengths
    assert not {path: length for path, length in lengths.items() if length > MAX_LINES}


def test_an_engine_over_positions_is_small() -> None:
    """Code that does not depend on the database belongs to engines/positional."""
    lines = sum(path.read_text(encoding="utf-8").count("\n") for path in python_files("src/penstock/engines/sqlite"))
    assert 0 < lines <= MAX_ENGINE_LINES


def test_no_retired_word_is_an_identifier() -> None:
    wrong = [
        f"{shown(path)}: {name}"
        for path in python_files("src")
        for name in sorted(set(_identifiers(path)))
        if set(re.split(r"_+", name.lower())) & RETIRED
    ]
    assert not wrong, "\n".join(wrong)


def _identifiers(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg | ast.keyword) and node.arg:
            yield node.arg
        elif isinstance(node, ast.Attribute):
            yield node.attr


def test_nothing_runs_text_as_code_or_trusts_pickles() -> None:
    wrong = []
    for path in python_files("src"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in DANGEROUS_CALLS:
                wrong.append(f"{shown(path)}:{node.lineno} calls {node.func.id}")
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                if names & DANGEROUS_MODULES:
                    wrong.append(f"{shown(path)}:{node.lineno} imports {names & DANGEROUS_MODULES}")
    assert not wrong, "\n".join(wrong)


def test_nothing_is_left_for_later() -> None:
    marks = re.compile("|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]))
    wrong = [
        f"{shown(path)}:{number}"
        for path in [*python_files(*CODE), *sql_files()]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if marks.search(line)
    ]
    assert not wrong


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists()
